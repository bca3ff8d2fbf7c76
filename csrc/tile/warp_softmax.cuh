// Online softmax over the score fragments of one warp (mma m16n8k16, prim/mma_sm80.cuh).
//
// A warp holds kRowTiles * 16 rows; a quad of lanes shares each row, and a lane sees two rows (h)
// of each row tile. Exponents are in base 2 and relative to a `base` per row, which moves only when
// the largest score passes it by more than kHeadroom, so that most tiles leave O alone.
//
// P is summed before it is rounded to be an operand of PV. So that O is right all the same where
// one key outweighs all others, a base that moves far moves to the largest score itself: the P of
// that key is exactly 1, and a row of one key gives V. Short moves are by whole numbers, for a
// power of two scales F16 sums without rounding.
#pragma once

#include "prim/math.cuh"

namespace ffpa {

template <int kRowTiles, int kColumnTiles>
using Scores = float[kRowTiles][kColumnTiles][2][2];  // [..][..][h][c]

template <int kRowTiles>
using PerRow = float[kRowTiles][2];  // [..][h]

// 2^x, exactly, of an x <= 0 that is whole up to rounding; 0 below the smallest normal number.
__device__ __forceinline__ float power_of_two(float x) {
  return __int_as_float((__float2int_rn(fmaxf(x, -127.0f)) + 127) << 23);
}

// Over the four lanes that share a row.
template <class Operation>
__device__ __forceinline__ float reduce_quad(float x, const Operation& operation) {
  x = operation(x, __shfl_xor_sync(0xffffffff, x, 1));
  return operation(x, __shfl_xor_sync(0xffffffff, x, 2));
}

struct Max {
  __device__ __forceinline__ float operator()(float a, float b) const { return fmaxf(a, b); }
};
struct Plus {
  __device__ __forceinline__ float operator()(float a, float b) const { return a + b; }
};

// Hides key j from row i unless j <= i + diagonal and j < seqlen_k; first_row and first_key are
// this lane's.
template <int kRowTiles, int kColumnTiles>
__device__ __forceinline__ void mask(Scores<kRowTiles, kColumnTiles>& scores, int first_row,
                                     int first_key, int seqlen_k, int diagonal) {
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int visible = min(seqlen_k, first_row + 16 * r + 8 * h + diagonal + 1) - first_key;
#pragma unroll
      for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
        for (int c = 0; c < 2; ++c) {
          if (8 * n + c >= visible) scores[r][n][h][c] = -kInfinity;
        }
      }
    }
  }
}

template <int kRowTiles, int kColumnTiles>
__device__ __forceinline__ void row_maxima(const Scores<kRowTiles, kColumnTiles>& scores,
                                           PerRow<kRowTiles>& maxima) {
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      float largest = fmaxf(scores[r][0][h][0], scores[r][0][h][1]);
#pragma unroll
      for (int n = 1; n < kColumnTiles; ++n) {
        largest = fmaxf(largest, fmaxf(scores[r][n][h][0], scores[r][n][h][1]));
      }
      maxima[r][h] = reduce_quad(largest, Max());
    }
  }
}

// Scores become exponents, rounded as a base is: where a base has just moved to a score, their
// difference is then exactly 0. Fused into one FMA, as exponentiate() does otherwise, it is what
// rounding cut off the base, and bases of a few thousand make that show in P.
template <int kRowTiles, int kColumnTiles>
__device__ __forceinline__ void scale_scores(Scores<kRowTiles, kColumnTiles>& scores,
                                             float scale_log2) {
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        float& score = scores[r][n][i / 2][i % 2];
        score = __fmul_rn(score, scale_log2);
      }
    }
  }
}

template <int kRowTiles, int kHeadroom>
struct WarpSoftmax {
  PerRow<kRowTiles> base;
  PerRow<kRowTiles> sum;  // over this lane's columns

  __device__ __forceinline__ void reset() {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
      base[r][0] = base[r][1] = -kInfinity;
      sum[r][0] = sum[r][1] = 0.0f;
    }
  }

  // Takes in a tile's row maxima. `factor` is what O has to be multiplied by; returns whether any
  // row of the warp has one that is not 1.
  __device__ __forceinline__ bool move_base(const PerRow<kRowTiles>& maxima, float scale_log2,
                                            PerRow<kRowTiles>& factor) {
    bool any_moves = false;
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float top = maxima[r][h] * scale_log2;
        const float rise = top - base[r][h];  // NaN, which moves nothing, before the first key
        const float next = rise > kFarMove ? top : base[r][h] + ceilf(rise);
        const bool moves = rise > kHeadroom;
        factor[r][h] = moves ? exp2_approx(base[r][h] - next) : 1.0f;
        base[r][h] = moves ? next : base[r][h];
        sum[r][h] *= factor[r][h];
        any_moves |= moves;
      }
    }
    return __any_sync(0xffffffff, any_moves);
  }

  // Scores become P.
  template <int kColumnTiles>
  __device__ __forceinline__ void exponentiate(Scores<kRowTiles, kColumnTiles>& scores,
                                               float scale_log2) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        // A row that has seen no key: exp2(-inf - 0) is 0, exp2(-inf + inf) would be NaN.
        const float offset = base[r][h] == -kInfinity ? 0.0f : -base[r][h];
#pragma unroll
        for (int n = 0; n < kColumnTiles; ++n) {
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            float& score = scores[r][n][h][c];
            score = exp2_approx(fmaf(score, scale_log2, offset));
            sum[r][h] += score;
          }
        }
      }
    }
  }

 private:
  // From there on a factor that is no power of two may round what O holds: it weighs little.
  static constexpr float kFarMove = 8.0f;
};

// The natural log-sum-exp of a row.
__device__ __forceinline__ float log_sum_exp(float base, float sum) {
  constexpr float kLn2 = 0.693147180559945309f;
  return sum == 0.0f ? -kInfinity : (base + log2f(sum)) * kLn2;
}

}  // namespace ffpa
