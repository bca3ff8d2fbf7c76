// TODO header
#pragma once

#include "kernels/ladder/ladder.cuh"
#include "kernels/ladder/lazy_softmax.cuh"
#include "tile/slice_ring.cuh"

namespace ffpa {

template <LadderConfig kConfig>
struct Ladder10Ring : LadderKernel<Ladder10Ring<kConfig>, kConfig> {
  using Cta = LadderCta<kConfig, SwizzledPanel>;
  using Element = typename Cta::Element;
  static constexpr int kSlots = 4;
  static constexpr int kAhead = 2;
  static constexpr int kBarrierBytes = 128;
  static constexpr int smem_bytes = kBarrierBytes + Cta::kBytesQ + kSlots * Cta::kBytesKv;

  // K and V in the order of use.
  struct Load {
    Cta& cta;
    int tiles;
    int next = 0;

    __device__ __forceinline__ bool done() const { return next == tiles; }
    __device__ __forceinline__ void operator()(uint32_t slot) {
      if (next++ % 2 == 0) {
        cta.k.copy(slot);
      } else {
        cta.v.copy(slot);
      }
    }
  };

  static __device__ __forceinline__ void run(const ForwardParams& params, unsigned char* smem) {
    auto& barriers = *reinterpret_cast<RingBarriers<kSlots>*>(smem);
    const uint32_t q_smem = shared_address(smem) + kBarrierBytes;
    SliceRing<kSlots, kAhead, Cta::kBytesKv> ring(barriers, q_smem + Cta::kBytesQ);
    Cta cta(params);
    LazySoftmax<Cta::kRowTiles> softmax(params.scale_log2);
    Load load{cta, 2 * cta.blocks.count};

    if (threadIdx.x == 0) barriers.init(Cta::kThreads);
    cta.q.copy(q_smem);
    cp_async_wait_all();
    __syncthreads();
    ring.prime(load);

#pragma unroll 1
    for (int block = 0; block < cta.blocks.count; ++block) {
      typename Cta::ScoreSums sums = {};
      multiply_buffered<Element>(sums, cta.tile_q(q_smem), cta.tile_k(ring.acquire(load)),
                                 [&](int step) {
                                   if (step == 0) ring.refill(load);
                                 });
      ring.release();

      typename Cta::Scores scores;
      typename Cta::FragmentsP p;
      cta.scores_of(sums, block, scores);
      if (softmax.update(scores)) cta.scale_out(softmax.factor);
      cta.pack(scores, p);

      multiply_buffered<Element>(cta.out, p, cta.tile_v(ring.acquire(load)), [&](int step) {
        if (step == 0) ring.refill(load);
      });
      ring.release();
    }
    cta.store(softmax);
  }
};

using Ladder10RingConfig = LadderConfig;

}  // namespace ffpa
