// Online softmax with the work taken out, from step 7 on: tile/warp_softmax.cuh with the interface
// of PlainSoftmax. The scale is folded into the exponent, one FMA and one exp2 per score; a row is
// summed over its four lanes once, at the end; O is rescaled only when P would pass 2^8.
#pragma once

#include "tile/warp_softmax.cuh"

namespace ffpa {

template <int kRowTiles>
struct LazySoftmax : WarpSoftmax<kRowTiles, 8> {
  PerRow<kRowTiles> factor;  // what O has to be multiplied by where update() says so
  float scale_log2;

  __device__ __forceinline__ explicit LazySoftmax(float scale_log2) : scale_log2(scale_log2) {
    this->reset();
  }

  // Scores become P; returns whether O has to be rescaled.
  template <int kColumnTiles>
  __device__ __forceinline__ bool update(Scores<kRowTiles, kColumnTiles>& scores) {
    PerRow<kRowTiles> maxima;
    row_maxima<kRowTiles, kColumnTiles>(scores, maxima);
    const bool moves = this->move_base(maxima, scale_log2, factor);
    this->exponentiate(scores, scale_log2);
    return moves;
  }

  // After the last tile: sums of whole rows.
  __device__ __forceinline__ void finish() {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int h = 0; h < 2; ++h)
        this->sum[r][h] = reduce_quad(this->sum[r][h], Plus());
    }
  }

  __device__ __forceinline__ float log_sum_exp(int r, int h) const {
    return ffpa::log_sum_exp(this->base[r][h], this->sum[r][h]);
  }
};

}  // namespace ffpa
