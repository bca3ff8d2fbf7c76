// ladder-5-interleave: as step 4, with operands loaded where they are used.
//
// Idea       ldmatrix of 16 columns of B just before their products, instead of 64 columns and then
//            theirs.
//
// Expected   Tensor cores and shared memory busy at the same time.
//
// Brought    Nothing: within 2 % of step 4. The compiler reorders a straight piece of code by
//            itself.
//
// Limit      As step 4.
#pragma once

#include "kernels/ladder/ladder.cuh"
#include "kernels/ladder/plain_softmax.cuh"

namespace ffpa {

template <LadderConfig kConfig>
struct Ladder5Interleave : LadderKernel<Ladder5Interleave<kConfig>, kConfig> {
  using Cta = LadderCta<kConfig, SwizzledPanel>;
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
      multiply_interleaved<Element>(sums, q, cta.tile_k(k_smem));
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
      multiply_interleaved<Element>(cta.out, p, cta.tile_v(v_smem));
    }
    cta.store(softmax);
  }
};

using Ladder5InterleaveConfig = LadderConfig;

}  // namespace ffpa
