// ladder-3-eager-loads: as step 2, with copies that run beside the products.
//
// Idea       V is on its way while S is computed, and the next K from the moment that S has used
//            this one.
//
// Expected   What step 2 waited for its copies, as far as the other CTAs did not hide it.
//
// Brought    A few per cent: just above half of FlashAttention-2's rate. Three CTAs an SM had
//            hidden most of it.
//
// Limit      Bank conflicts: shared memory is busy all the time, half of it for nothing.
#pragma once

#include "kernels/ladder/ladder.cuh"
#include "kernels/ladder/plain_softmax.cuh"

namespace ffpa {

template <LadderConfig kConfig, template <int> class PanelOf = SlicedPanel>
struct Ladder3EagerLoads : LadderKernel<Ladder3EagerLoads<kConfig, PanelOf>, kConfig> {
  using Cta = LadderCta<kConfig, PanelOf>;
  using Element = typename Cta::Element;
  static constexpr int smem_bytes = Cta::kBytesQ + 2 * Cta::kBytesKv;

  static __device__ __forceinline__ void run(const ForwardParams& params, unsigned char* smem) {
    Cta cta(params);
    const uint32_t q_smem = shared_address(smem);
    const uint32_t k_smem = q_smem + Cta::kBytesQ;
    const uint32_t v_smem = k_smem + Cta::kBytesKv;
    PlainSoftmax<Cta::kRowTiles> softmax(params.scale_log2);

    typename Cta::FragmentsQ q;
    cta.q.copy(0, q_smem);
    cta.k.copy(0, k_smem);
    cp_async_wait_all();
    __syncthreads();
    cta.load_q(q_smem, q);

#pragma unroll 1
    for (int block = 0; block < cta.blocks.count; ++block) {
      cp_async_wait_all();
      __syncthreads();  // K has landed, and nobody reads the last V any more
      cta.v.copy(block, v_smem);
      cp_async_commit();
      typename Cta::ScoreSums sums = {};
      multiply<Element>(sums, q, cta.tile_k(k_smem));
      __syncthreads();  // nobody reads this K any more
      cta.k.copy(block + 1, k_smem);
      cp_async_commit();

      typename Cta::Scores scores;
      typename Cta::FragmentsP p;
      cta.scores_of(sums, block, scores);
      if (softmax.update(scores)) cta.scale_out(softmax.factor);
      cta.pack(scores, p);

      cp_async_wait_group<1>();
      __syncthreads();  // V has landed; the next K may be under way
      multiply<Element>(cta.out, p, cta.tile_v(v_smem));
    }
    cta.store(softmax);
  }
};

using Ladder3EagerLoadsConfig = LadderConfig;

}  // namespace ffpa
