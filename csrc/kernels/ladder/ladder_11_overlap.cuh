// ladder-11-overlap: as step 10, with exponentials beside the products.
//
// Idea       P is computed 16 keys at a time, when PV asks for it (LazyWeights), so that the
//            exponentials of the next keys run while tensor cores multiply these.
//
// Expected   The softmax of a warp hidden under its own products.
//
// Brought    112 to 118 % of FlashAttention-2.
//
// Limit      Operands that pass through registers, and QKᵀ, beside which nothing else of the warp
//            runs: the next rung is split_d-sm90.
#pragma once

#include "kernels/ladder/ladder.cuh"
#include "kernels/ladder/lazy_softmax.cuh"
#include "kernels/ladder/tile_slots.cuh"

namespace ffpa {

template <LadderConfig kConfig>
struct Ladder11Overlap : LadderKernel<Ladder11Overlap<kConfig>, kConfig> {
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
      cta.scores_of(sums, block, scores);
      v_slots.fill(cta.v, block + 1);
      if (softmax.move(scores)) cta.scale_out(softmax.factor);

      const LazyWeights<Element, Cta::kRowTiles, Cta::kScoreTiles> p{scores, softmax};
      multiply_buffered<Element>(cta.out, p, cta.tile_v(v_slots.acquire(block)));
      v_slots.release(block);
    }
    k_slots.acquire(cta.blocks.count);  // a CTA must not end while copies are under way
    v_slots.acquire(cta.blocks.count);
    cta.store(softmax);
  }
};

using Ladder11OverlapConfig = LadderConfig;

}  // namespace ffpa
