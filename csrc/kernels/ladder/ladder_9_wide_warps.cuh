// ladder-9-wide-warps: 128 rows as in step 8, but 32 for each of 4 warps.
//
// Idea       Each fragment of K and V feeds two row tiles. Q no longer fits in registers and is
//            read with every tile. V gets a second slot too: one barrier a tile is enough.
//
// Expected   Half of the reads of K and V; two CTAs an SM, so that one multiplies while the other
//            is at its softmax.
//
// Brought    Two fifths more than step 8, and the lead: more than FlashAttention-2's rate at every
//            length, by a tenth from N = 2048 on.
//
// Limit      The barrier: a CTA's warps multiply together and do their softmax together.
#pragma once

#include "kernels/ladder/ladder.cuh"
#include "kernels/ladder/lazy_softmax.cuh"

namespace ffpa {

template <LadderConfig kConfig>
struct Ladder9WideWarps : LadderKernel<Ladder9WideWarps<kConfig>, kConfig> {
  using Cta = LadderCta<kConfig, SwizzledPanel>;
  using Element = typename Cta::Element;
  static constexpr int smem_bytes = Cta::kBytesQ + 4 * Cta::kBytesKv;

  static __device__ __forceinline__ void run(const ForwardParams& params, unsigned char* smem) {
    Cta cta(params);
    const uint32_t q_smem = shared_address(smem);
    const uint32_t k_smem = q_smem + Cta::kBytesQ;
    const uint32_t v_smem = k_smem + 2 * Cta::kBytesKv;
    LazySoftmax<Cta::kRowTiles> softmax(params.scale_log2);

    cta.q.copy(0, q_smem);
    cta.k.copy(0, k_smem);
    cta.v.copy(0, v_smem);

#pragma unroll 1
    for (int block = 0; block < cta.blocks.count; ++block) {
      const uint32_t slot = block % 2 * Cta::kBytesKv;
      const uint32_t next_slot = Cta::kBytesKv - slot;
      cp_async_wait_all();
      __syncthreads();  // K and V have landed, and nobody reads those of the other slots any more
      cta.k.copy(block + 1, k_smem + next_slot);
      cta.v.copy(block + 1, v_smem + next_slot);
      typename Cta::ScoreSums sums = {};
      multiply_buffered<Element>(sums, cta.tile_q(q_smem), cta.tile_k(k_smem + slot));

      typename Cta::Scores scores;
      typename Cta::FragmentsP p;
      cta.scores_of(sums, block, scores);
      if (softmax.update(scores)) cta.scale_out(softmax.factor);
      cta.pack(scores, p);

      multiply_buffered<Element>(cta.out, p, cta.tile_v(v_smem + slot));
    }
    cta.store(softmax);
  }
};

using Ladder9WideWarpsConfig = LadderConfig;

}  // namespace ffpa
