// Online softmax over the score tiles of one warpgroup (wgmma accumulators).
//
// A thread holds two rows (Accumulator in prim/wgmma.cuh); the four threads of a quad share them.
// Exponents are in base 2 and relative to a `base` per row. It is not always the row's maximum, for
// it moves only when P would exceed WeightRange, so that most steps leave O alone. When it moves it
// becomes the maximum itself: P of that key is then exactly 1, and a row that one key dominates, or
// that sees one only, has O = V without rounding.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "config.cuh"
#include "prim/math.cuh"
#include "prim/wgmma.cuh"

namespace ffpa {

// The range of P. Sums in F32 have room for more than 2^2, but a P that is not its base's own is
// rounded, and where few keys carry a row that shows beside a softmax whose base always moves: up
// to 2^8 the error was 1.2 times as large for scores that spread by 16, up to 2^2 it is 1.04 times,
// and bases of standard normal scores seldom move after the first step. An F16 O overflows at
// 65504, so there P is kept below 2^4 and multiplied by 2^-7: 8 Ki keys of the largest weight are
// safe with values up to 63, and P is normal down to 2^-7 of a row's largest.
template <class PvSum>
struct WeightRange {
  static constexpr float kLimit = 2.0f;  // log2 of the largest P
  static constexpr float kScale = 1.0f;
};
template <>
struct WeightRange<__half> {
  static constexpr float kLimit = 4.0f;
  static constexpr float kScale = 0.0078125f;
};

__device__ __forceinline__ float quad_max(float x) {
  x = fmaxf(x, __shfl_xor_sync(0xffffffff, x, 1));
  return fmaxf(x, __shfl_xor_sync(0xffffffff, x, 2));
}

__device__ __forceinline__ float quad_sum(float x) {
  x += __shfl_xor_sync(0xffffffff, x, 1);
  return x + __shfl_xor_sync(0xffffffff, x, 2);
}

// Hides the keys from `visible[r]` on, counted from the tile's first column.
template <class Sum, int kColumns>
__device__ __forceinline__ void mask(Accumulator<Sum, kColumns>& scores, const int (&visible)[2]) {
  const int first_column = 2 * (threadIdx.x % 4);
#pragma unroll
  for (int i = 0; i < scores.kPairs; ++i) {
    const int room = visible[i % 2] - first_column - 8 * (i / 2);
    float2 pair = scores.get(i);
    if (room <= 0) pair.x = -kInfinity;
    if (room <= 1) pair.y = -kInfinity;
    scores.set(i, pair);
  }
}

// The largest score of each row in this thread's columns.
template <int kColumns>
__device__ __forceinline__ void thread_max(const Accumulator<float, kColumns>& scores,
                                           float (&max)[2]) {
#pragma unroll
  for (int i = 0; i < scores.kPairs; ++i) {
    const float2 pair = scores.get(i);
    const float larger = fmaxf(pair.x, pair.y);
    max[i % 2] = i < 2 ? larger : fmaxf(max[i % 2], larger);
  }
}

template <int kColumns>
__device__ __forceinline__ void thread_max(const Accumulator<__half, kColumns>& scores,
                                           float (&max)[2]) {
  __half2 larger[2];
#pragma unroll
  for (int i = 0; i < scores.kPairs; ++i) {
    const __half2 pair = reinterpret_cast<const __half2&>(scores.reg[i]);
    larger[i % 2] = i < 2 ? pair : __hmax2(larger[i % 2], pair);
  }
#pragma unroll
  for (int r = 0; r < 2; ++r)
    max[r] = fmaxf(__low2float(larger[r]), __high2float(larger[r]));
}

// The largest score of each row.
template <class Sum, int kColumns>
__device__ __forceinline__ void row_max(const Accumulator<Sum, kColumns>& scores, float (&max)[2]) {
  thread_max(scores, max);
  max[0] = quad_max(max[0]);
  max[1] = quad_max(max[1]);
}

// Scores become exponents, rounded as a base is, so that the difference from a base that is one of
// them is 0. Fused into one FMA, as exponentiate() does otherwise, it is what rounding cut off the
// base, which shows in P for bases of a few thousand. F16 scores have lost more before.
template <int kColumns>
__device__ __forceinline__ void scale_scores(Accumulator<float, kColumns>& scores,
                                             float scale_log2) {
#pragma unroll
  for (float& score : scores.reg)
    score = __fmul_rn(score, scale_log2);
}

// Multiplies the rows of a tile.
template <class Sum, int kColumns>
__device__ __forceinline__ void scale_rows(Accumulator<Sum, kColumns>& tile,
                                           const float (&factor)[2]) {
#pragma unroll
  for (int i = 0; i < tile.kPairs; ++i) {
    const float2 pair = tile.get(i);
    tile.set(i, {pair.x * factor[i % 2], pair.y * factor[i % 2]});
  }
}

template <class PvSum>
struct RowSoftmax {
  // Finite, so that a row whose keys are all hidden so far gives exp2(-inf) and not NaN.
  static constexpr float kNoBase = -3.0e38f;
  static constexpr float kFusedBase = 64.0f;  // up to which exponents may be rounded but once

  float base[2];
  float sum[2];  // this thread's columns only

  __device__ __forceinline__ void reset() {
    base[0] = base[1] = kNoBase;
    sum[0] = sum[1] = 0.0f;
  }

  // Moves the bases that have to for scores with these maxima, of a thread or of whole rows: most
  // steps move none, and so need no maximum of a row. True if any row of the warp moved: then O has
  // to be multiplied by `factor`, as the sums have been.
  __device__ __forceinline__ bool move_base(const float (&max)[2], float scale_log2,
                                            float (&factor)[2]) {
    constexpr float kLimit = WeightRange<PvSum>::kLimit;
    const float top[2] = {max[0] * scale_log2, max[1] * scale_log2};
    const bool moves = top[0] > base[0] + kLimit || top[1] > base[1] + kLimit;
    if (!__any_sync(0xffffffff, moves)) return false;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const float of_row = quad_max(top[r]);
      const float next = of_row > base[r] + kLimit ? of_row : base[r];
      factor[r] = exp2_approx(base[r] - next);
      base[r] = next;
      sum[r] *= factor[r];
    }
    return true;
  }

  // Scores become P, still in their accumulators.
  template <class Sum, int kColumns>
  __device__ __forceinline__ void exponentiate(Accumulator<Sum, kColumns>& scores,
                                               float scale_log2) {
    if constexpr (std::is_same_v<Sum, float>) {
      if (fmaxf(fabsf(base[0]), fabsf(base[1])) > kFusedBase) {
        scale_scores(scores, scale_log2);
        scale_log2 = 1.0f;
      }
    }
#pragma unroll
    for (int i = 0; i < scores.kPairs; ++i) {
      const int r = i % 2;
      float2 pair = scores.get(i);
      pair.x = exp2_approx(fmaf(pair.x, scale_log2, -base[r]));
      pair.y = exp2_approx(fmaf(pair.y, scale_log2, -base[r]));
      scores.set(i, pair);
      sum[r] += pair.x + pair.y;
    }
  }

  __device__ __forceinline__ void add_up_quads() {
    sum[0] = quad_sum(sum[0]);
    sum[1] = quad_sum(sum[1]);
  }

  // Once the sums are of whole rows: what makes O of its accumulators (0 for a row that saw no key)
  // and the natural log-sum-exp.
  __device__ __forceinline__ void finish(float (&factor)[2], float (&lse)[2]) const {
    constexpr float kLn2 = 0.693147180559945309f;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      factor[r] = sum[r] == 0.0f ? 0.0f : 1.0f / (sum[r] * WeightRange<PvSum>::kScale);
      lse[r] = sum[r] == 0.0f ? -kInfinity : (base[r] + log2f(sum[r])) * kLn2;
    }
  }
};

// P as the A operand of the PV products, 16 keys a step: the accumulators of columns 16 k .. 16 k +
// 15 are, two to a register, just the fragment that wgmma takes.
template <int kColumns>
struct PackedScores {
  uint32_t reg[kColumns / 16][4];
};

template <DType kDType>
__device__ __forceinline__ uint32_t pack(float2 pair) {
  if constexpr (kDType == DType::bf16) {
    const __nv_bfloat162 packed = __float22bfloat162_rn(pair);
    return reinterpret_cast<const uint32_t&>(packed);
  } else {
    const __half2 packed = __float22half2_rn(pair);
    return reinterpret_cast<const uint32_t&>(packed);
  }
}

template <DType kDType, class PvSum, class QkSum, int kColumns>
__device__ __forceinline__ void pack_weights(const Accumulator<QkSum, kColumns>& scores,
                                             PackedScores<kColumns>& packed) {
#pragma unroll
  for (int i = 0; i < scores.kPairs; ++i) {
    uint32_t& pair = packed.reg[i / 4][i % 4];
    if constexpr (std::is_same_v<QkSum, __half>) {
      pair = scores.reg[i];
    } else {
      pair = pack<kDType>(scores.get(i));
    }
    if constexpr (std::is_same_v<PvSum, __half>) {
      const __half2 scaled = __hmul2(reinterpret_cast<const __half2&>(pair),
                                     __float2half2_rn(WeightRange<PvSum>::kScale));
      pair = reinterpret_cast<const uint32_t&>(scaled);
    }
  }
}

}  // namespace ffpa
