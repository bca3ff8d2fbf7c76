// attn_mask on the score fragments of one warp (mma m16n8k16, prim/mma_sm80.cuh).
#pragma once

#include <cstdint>

#include "params.h"
#include "tile/masked_exponent.cuh"
#include "tile/warp_softmax.cuh"

namespace ffpa {

// Scores become exponents of 2 with the mask on them. row_offset(r, h) says where this lane's rows
// begin in the mask, below zero where they do not exist; first_key is this lane's.
template <class Value, int kRowTiles, int kColumnTiles, class RowOffset>
__device__ __forceinline__ void add_mask_values(Scores<kRowTiles, kColumnTiles>& scores,
                                                float scale_log2, const ScoreMask& mask,
                                                int first_key, int seqlen_k,
                                                const RowOffset& row_offset) {
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int64_t offset = row_offset(r, h);
      const Value* values =
          static_cast<const Value*>(mask.values) + offset + first_key * mask.column;
      const int num_keys = offset < 0 ? 0 : seqlen_k - first_key;
#pragma unroll
      for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          const int key = 8 * n + c;
          float& score = scores[r][n][h][c];
          score *= scale_log2;
          if (key < num_keys) score = masked_exponent(score, values[key * mask.column]);
        }
      }
    }
  }
}

template <class Element, int kRowTiles, int kColumnTiles, class RowOffset>
__device__ __forceinline__ void add_mask(Scores<kRowTiles, kColumnTiles>& scores, float scale_log2,
                                         const ScoreMask& mask, int first_key, int seqlen_k,
                                         const RowOffset& row_offset) {
  const auto add = [&](auto value) {
    add_mask_values<decltype(value), kRowTiles, kColumnTiles>(scores, scale_log2, mask, first_key,
                                                              seqlen_k, row_offset);
  };
  if (mask.kind == ScoreMask::boolean) {
    add(bool());
  } else if (mask.kind == ScoreMask::element) {
    add(Element());
  } else {
    add(float());
  }
}

}  // namespace ffpa
