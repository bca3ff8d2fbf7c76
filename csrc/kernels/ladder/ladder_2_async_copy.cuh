// ladder-2-async-copy: as step 1, with tiles copied by cp.async.
//
// Idea       Copies go from global to shared memory without passing through registers.
//
// Expected   Fewer instructions and registers; little time, since the copies are waited for on the
//            spot.
//
// Brought    Nothing yet: as step 1 within a few per cent.
//
// Limit      The wait for each tile, and the bank conflicts.
#pragma once

#include "kernels/ladder/ladder.cuh"
#include "kernels/ladder/plain_softmax.cuh"

namespace ffpa {

template <LadderConfig kConfig>
struct Ladder2AsyncCopy : LadderKernel<Ladder2AsyncCopy<kConfig>, kConfig> {
  using Cta = LadderCta<kConfig, SlicedPanel>;
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
    cp_async_wait_all();
    __syncthreads();
    cta.load_q(q_smem, q);

#pragma unroll 1
    for (int block = 0; block < cta.blocks.count; ++block) {
      __syncthreads();  // nobody reads the last tiles any more
      cta.k.copy(block, k_smem);
      cta.v.copy(block, v_smem);
      cp_async_wait_all();
      __syncthreads();

      typename Cta::ScoreSums sums = {};
      multiply<Element>(sums, q, cta.tile_k(k_smem));

      typename Cta::Scores scores;
      typename Cta::FragmentsP p;
      cta.scores_of(sums, block, scores);
      if (softmax.update(scores)) cta.scale_out(softmax.factor);
      cta.pack(scores, p);

      multiply<Element>(cta.out, p, cta.tile_v(v_smem));
    }
    cta.store(softmax);
  }
};

using Ladder2AsyncCopyConfig = LadderConfig;

}  // namespace ffpa
