// The tensor core instruction of Ampere, m16n8k16, for every accumulator it has.
//
// Of a 16 x 8 result, lane i holds (row, column) = (i / 4 + 8 h, 2 (i % 4) + c) for h, c in {0, 1}.
// The same layout, two results side by side, is that of the A operand: P needs no shuffling.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "config.cuh"

namespace ffpa {

template <class T>
struct Tile16x8;

// F16 sums: 2 registers, rounded to nearest even after each instruction.
template <>
struct Tile16x8<__half> {
  __half2 pair[2];  // [h]

  __device__ __forceinline__ void clear() { pair[0] = pair[1] = __half2half2(__half(0.0f)); }
  __device__ __forceinline__ float2 row(int h) const { return __half22float2(pair[h]); }
  __device__ __forceinline__ void scale_row(int h, float factor) {
    pair[h] = __hmul2(pair[h], __float2half2_rn(factor));
  }
  // Adds factor * tile, rounded once.
  __device__ __forceinline__ void add(const Tile16x8& tile, float factor) {
    for (int h = 0; h < 2; ++h)
      pair[h] = __hfma2(tile.pair[h], __float2half2_rn(factor), pair[h]);
  }
};

// F32 sums: 4 registers.
template <>
struct Tile16x8<float> {
  float value[2][2];  // [h][c]

  __device__ __forceinline__ void clear() {
    value[0][0] = value[0][1] = value[1][0] = value[1][1] = 0.0f;
  }
  __device__ __forceinline__ float2 row(int h) const { return {value[h][0], value[h][1]}; }
  __device__ __forceinline__ void scale_row(int h, float factor) {
    value[h][0] *= factor;
    value[h][1] *= factor;
  }
  __device__ __forceinline__ void add(const Tile16x8<__half>& tile, float factor) {
    for (int h = 0; h < 2; ++h) {
      const float2 pair = tile.row(h);
      value[h][0] = fmaf(pair.x, factor, value[h][0]);
      value[h][1] = fmaf(pair.y, factor, value[h][1]);
    }
  }
};

// sum += a b, with a 16 x 16 and b 16 x 8.
template <class Element>
__device__ __forceinline__ void mma(Tile16x8<float>& sum, const uint32_t (&a)[4], uint32_t b0,
                                    uint32_t b1);

template <>
__device__ __forceinline__ void mma<__half>(Tile16x8<float>& sum, const uint32_t (&a)[4],
                                            uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum.value[0][0]), "+f"(sum.value[0][1]), "+f"(sum.value[1][0]), "+f"(sum.value[1][1])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <>
__device__ __forceinline__ void mma<__nv_bfloat16>(Tile16x8<float>& sum, const uint32_t (&a)[4],
                                                   uint32_t b0, uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(sum.value[0][0]), "+f"(sum.value[0][1]), "+f"(sum.value[1][0]), "+f"(sum.value[1][1])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

template <class Element>
__device__ __forceinline__ void mma(Tile16x8<__half>& sum, const uint32_t (&a)[4], uint32_t b0,
                                    uint32_t b1) {
  static_assert(sizeof(Element) == 2 && !__is_same(Element, __nv_bfloat16),
                "mma has no F16 sums of bf16 products");
  asm("mma.sync.aligned.m16n8k16.row.col.f16.f16.f16.f16 {%0, %1}, {%2, %3, %4, %5}, {%6, %7}, "
      "{%0, %1};"
      : "+r"(reinterpret_cast<uint32_t&>(sum.pair[0])),
        "+r"(reinterpret_cast<uint32_t&>(sum.pair[1]))
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

// Which types a product sums in: `Chain` inside the tensor core, `Stored` between chains. They are
// the rows of Acc, one for QKᵀ and one for PV.
template <class ChainType, class StoredType>
struct Sums {
  using Chain = ChainType;
  using Stored = StoredType;
  static constexpr bool kChained = !__is_same(Chain, Stored);
};

template <Acc>
struct AccPolicy;
template <>
struct AccPolicy<Acc::f32> {
  using Qk = Sums<float, float>;
  using Pv = Sums<float, float>;
};
template <>
struct AccPolicy<Acc::f16> {
  using Qk = Sums<__half, __half>;
  using Pv = Sums<__half, __half>;
};
template <>
struct AccPolicy<Acc::qk32_pv16> {
  using Qk = Sums<float, float>;
  using Pv = Sums<__half, __half>;
};
template <>
struct AccPolicy<Acc::qk16_pv32> {
  using Qk = Sums<__half, __half>;
  using Pv = Sums<float, float>;
};
template <>
struct AccPolicy<Acc::f16f32> {
  using Qk = Sums<__half, float>;
  using Pv = Sums<__half, float>;
};

// Two F32 values as neighbouring elements of an operand.
template <class Element>
__device__ __forceinline__ uint32_t pack_pair(float low, float high) {
  if constexpr (__is_same(Element, __nv_bfloat16)) {
    const __nv_bfloat162 pair = __floats2bfloat162_rn(low, high);
    return reinterpret_cast<const uint32_t&>(pair);
  } else {
    const __half2 pair = __floats2half2_rn(low, high);
    return reinterpret_cast<const uint32_t&>(pair);
  }
}

}  // namespace ffpa
