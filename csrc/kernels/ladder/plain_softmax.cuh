// Online softmax as the formulas have it, over the score fragments of one warp; steps 2 to 6.
//
// Per tile: scale the scores, take the maximum of each row, subtract it, exponentiate, sum the row
// over its four lanes, and rescale what earlier tiles gave. Step 7 has the other way.
#pragma once

#include "prim/math.cuh"
#include "tile/warp_softmax.cuh"

namespace ffpa {

constexpr float kLog2E = 1.44269504088896341f;

// e^x by the special function unit.
__device__ __forceinline__ float exp_approx(float x) {
  return exp2_approx(x * kLog2E);
}

template <int kRowTiles>
struct PlainSoftmax {
  PerRow<kRowTiles> max;
  PerRow<kRowTiles> sum;
  PerRow<kRowTiles> factor;  // what O has to be multiplied by after a tile
  float scale;

  __device__ __forceinline__ explicit PlainSoftmax(float scale_log2) : scale(scale_log2 * kLn2) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      max[r][0] = max[r][1] = -kInfinity;
      sum[r][0] = sum[r][1] = 0.0f;
    }
  }

  // Scores become P; returns that O has to be rescaled.
  template <int kColumnTiles>
  __device__ __forceinline__ bool update(Scores<kRowTiles, kColumnTiles>& scores) {
    for_each(scores, [&](int, int, float& score) { score *= scale; });
    PerRow<kRowTiles> base;
    row_maxima<kRowTiles, kColumnTiles>(scores, base);
    PerRow<kRowTiles> tile_sum;
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float top = fmaxf(max[r][h], base[r][h]);
        // A row that has seen no key keeps -inf, and exp(-inf + inf) would be NaN.
        base[r][h] = top == -kInfinity ? 0.0f : top;
        factor[r][h] = exp_approx(max[r][h] - base[r][h]);
        max[r][h] = top;
        tile_sum[r][h] = 0.0f;
      }
    }
    for_each(scores, [&](int r, int h, float& score) {
      score = exp2_approx(fmaf(score, kLog2E, -base[r][h] * kLog2E));  // e^(score - base)
      tile_sum[r][h] += score;
    });
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int h = 0; h < 2; ++h)
        sum[r][h] = sum[r][h] * factor[r][h] + reduce_quad(tile_sum[r][h], Plus());
    }
    return true;
  }

  __device__ __forceinline__ void finish() {}

  __device__ __forceinline__ float log_sum_exp(int r, int h) const {
    return max[r][h] + logf(sum[r][h]);  // no key: -inf - inf
  }

 private:
  static constexpr float kLn2 = 0.693147180559945309f;

  template <int kColumnTiles, class Visit>
  static __device__ __forceinline__ void for_each(Scores<kRowTiles, kColumnTiles>& scores,
                                                  const Visit& visit) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          visit(r, h, scores[r][n][h][0]);
          visit(r, h, scores[r][n][h][1]);
        }
      }
    }
  }
};

}  // namespace ffpa
