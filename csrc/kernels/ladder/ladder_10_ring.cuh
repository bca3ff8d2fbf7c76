// ladder-10-ring: as step 9, with barriers in shared memory instead of __syncthreads.
//
// Idea       A slot has two barriers: full, when every thread's copies have landed, and empty, when
//            every thread is done with it (tile_slots.cuh). Warps wait for tiles, not for each
//            other.
//
// Expected   Warps drift apart, and the softmax of one runs beside the products of another.
//
// Brought    A few per cent more than step 9, at every length.
//
// Limit      mma.sync, whose operands pass through registers: with nothing else to do it reaches
//            590 TFLOP/s on an H200, and this step two thirds of that. Exponentials put between a
//            warp's own products gain nothing (csrc/NOTES.md); the next rung is split_d-sm90.
#pragma once

#include "kernels/ladder/ladder.cuh"
#include "kernels/ladder/lazy_softmax.cuh"
#include "kernels/ladder/tile_slots.cuh"

namespace ffpa {

template <LadderConfig kConfig>
struct Ladder10Ring : LadderKernel<Ladder10Ring<kConfig>, kConfig> {
  using Cta = LadderCta<kConfig, SwizzledPanel>;
  using Element = typename Cta::Element;
  using Slots = TileSlots<typename Cta::SourceKv>;
  static constexpr int kBarrierBytes = 128;
  static constexpr int smem_bytes = kBarrierBytes + Cta::kBytesQ + 2 * Slots::kBytes;

  static __device__ __forceinline__ void run(const ForwardParams& params, unsigned char* smem) {
    Cta cta(params);
    auto* barriers = reinterpret_cast<SlotBarriers*>(smem);
    const uint32_t q_smem = shared_address(smem) + kBarrierBytes;
    Slots k_slots(barriers[0], q_smem + Cta::kBytesQ);
    Slots v_slots(barriers[1], q_smem + Cta::kBytesQ + Slots::kBytes);
    LazySoftmax<Cta::kRowTiles> softmax(params.scale_log2);

    if (threadIdx.x < 2) barriers[threadIdx.x].init(Cta::kThreads);
    __syncthreads();
    cta.q.copy(0, q_smem);
    k_slots.fill(cta.k, 0);
    v_slots.fill(cta.v, 0);
    cp_async_wait_all();
    __syncthreads();  // Q has landed

#pragma unroll 1
    for (int block = 0; block < cta.blocks.count; ++block) {
      const uint32_t k_smem = k_slots.acquire(block);
      k_slots.fill(cta.k, block + 1);
      typename Cta::ScoreSums sums = {};
      multiply_buffered<Element>(sums, cta.tile_q(q_smem), cta.tile_k(k_smem));
      k_slots.release(block);

      typename Cta::Scores scores;
      typename Cta::FragmentsP p;
      cta.scores_of(sums, block, scores);
      if (softmax.update(scores)) cta.scale_out(softmax.factor);
      cta.pack(scores, p);

      const uint32_t v_smem = v_slots.acquire(block);
      v_slots.fill(cta.v, block + 1);
      multiply_buffered<Element>(cta.out, p, cta.tile_v(v_smem));
      v_slots.release(block);
    }
    k_slots.acquire(cta.blocks.count);  // a CTA must not end while copies are under way
    v_slots.acquire(cta.blocks.count);
    cta.store(softmax);
  }
};

using Ladder10RingConfig = LadderConfig;

}  // namespace ffpa
