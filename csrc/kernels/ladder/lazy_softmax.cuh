// Online softmax with the work taken out, from step 7 on: tile/warp_softmax.cuh with the interface
// of PlainSoftmax. The scale is folded into the exponent, one FMA and one exp2 per score; a row is
// summed over its four lanes once, at the end; O is rescaled only when a maximum has grown by 2^8.
#pragma once

#include "prim/mma_sm80.cuh"
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
    const bool moves = move(scores);
    this->exponentiate(scores, scale_log2);
    return moves;
  }

  // The first half of that: moves the bases.
  template <int kColumnTiles>
  __device__ __forceinline__ bool move(const Scores<kRowTiles, kColumnTiles>& scores) {
    PerRow<kRowTiles> maxima;
    row_maxima<kRowTiles, kColumnTiles>(scores, maxima);
    return this->move_base(maxima, scale_log2, factor);
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

// P as A operand that is computed as the products ask for it: 16 keys' exponentials beside the
// products of the 16 keys before.
template <class Element, int kRowTiles, int kColumnTiles>
struct LazyWeights {
  static constexpr int kSteps = kColumnTiles / 2;
  const Scores<kRowTiles, kColumnTiles>& scores;
  LazySoftmax<kRowTiles>& softmax;

  __device__ __forceinline__ void load(uint32_t (&a)[kRowTiles][4], int k) const {
    Scores<kRowTiles, 2> weights;
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int i = 0; i < 8; ++i)
        weights[r][i / 4][i / 2 % 2][i % 2] = scores[r][2 * k + i / 4][i / 2 % 2][i % 2];
    }
    softmax.exponentiate(weights, softmax.scale_log2);
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int i = 0; i < 4; ++i)
        a[r][i] = pack_pair<Element>(weights[r][i / 2][i % 2][0], weights[r][i / 2][i % 2][1]);
    }
  }
};

}  // namespace ffpa
