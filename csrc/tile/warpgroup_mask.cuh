// attn_mask on the scores of a warpgroup (wgmma accumulators, prim/wgmma.cuh).
//
// A thread's scores are pairs of neighbouring keys, eight keys apart. Additive masks are read in
// such pairs. Of a boolean one the four threads of a quad read 16 keys each and tell each other
// what they found as bits: a load for 32 scores.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

#include "params.h"
#include "prim/wgmma.cuh"
#include "tile/masked_exponent.cuh"

namespace ffpa {

template <class Vector>
__device__ __forceinline__ bool aligned(const void* address) {
  return reinterpret_cast<uintptr_t>(address) % sizeof(Vector) == 0;
}

// Which of 16 keys are seen, the first as bit 0; keys from num_keys on do not exist.
__device__ __forceinline__ uint32_t visible_bits(const uint8_t* seen, int64_t stride,
                                                 int num_keys) {
  uint32_t bits = 0;
  if (stride == 1 && num_keys >= 16 && aligned<uint4>(seen)) {
    const uint4 vector = *reinterpret_cast<const uint4*>(seen);
    const uint32_t words[4] = {vector.x, vector.y, vector.z, vector.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      // Bytes of 0 or 1, from the lowest on, meet as bits 24 to 27.
      bits |= (words[i] * 0x01020408u >> 24) << 4 * i;
    }
  } else {
#pragma unroll 4
    for (int key = 0; key < 16; ++key) {
      if (key < num_keys && seen[key * stride] != 0) bits |= 1u << key;
    }
  }
  return bits;
}

template <int kColumns, class RowOffset>
__device__ __forceinline__ void add_booleans(Accumulator<float, kColumns>& scores, float scale_log2,
                                             const ScoreMask& mask, const RowOffset& row_offset,
                                             int first_key, int seqlen_k) {
  static_assert(kColumns % 64 == 0, "the threads of a quad read 64 keys");
  const int thread = threadIdx.x % 4;
#pragma unroll
  for (int first = 0; first < kColumns; first += 64) {
    const int key = first_key + first + 16 * thread;
    uint32_t own = 0;
#pragma unroll
    for (int r = 0; r < 2; ++r) {
      const auto* const seen =
          static_cast<const uint8_t*>(mask.values) + row_offset(r) + key * mask.column;
      own |= visible_bits(seen, mask.column, seqlen_k - key) << 16 * r;
    }
#pragma unroll
    for (int other = 0; other < 4; ++other) {
      const uint32_t bits = __shfl_sync(0xffffffff, own, other, 4) >> 2 * thread;
#pragma unroll
      for (int j = 0; j < 4; ++j) {
        const int i = (first + 16 * other) / 4 + j;
        const uint32_t of_pair = bits >> (16 * (j % 2) + 8 * (j / 2));
        float2 pair = scores.get(i);
        pair.x = masked_exponent(pair.x * scale_log2, bool(of_pair & 1));
        pair.y = masked_exponent(pair.y * scale_log2, bool(of_pair & 2));
        scores.set(i, pair);
      }
    }
  }
}

__device__ __forceinline__ float2 load_pair(const float* values) {
  return *reinterpret_cast<const float2*>(values);
}
__device__ __forceinline__ float2 load_pair(const __half* values) {
  return __half22float2(*reinterpret_cast<const __half2*>(values));
}
__device__ __forceinline__ float2 load_pair(const __nv_bfloat16* values) {
  return __bfloat1622float2(*reinterpret_cast<const __nv_bfloat162*>(values));
}

// Row r of the thread's two; addends(column) are those of a pair. kAtOnce pairs may be on their way
// from memory together, as far as there are registers.
template <int kAtOnce, int kColumns, class Addends>
__device__ __forceinline__ void add_row(Accumulator<float, kColumns>& scores, float scale_log2,
                                        int r, const Addends& addends) {
#pragma unroll
  for (int j = 0; j < kColumns / 8; ++j) {
    if (j % kAtOnce == 0) asm volatile("" ::: "memory");
    const float2 addend = addends(8 * j);
    float2 pair = scores.get(2 * j + r);
    pair.x = masked_exponent(pair.x * scale_log2, addend.x);
    pair.y = masked_exponent(pair.y * scale_log2, addend.y);
    scores.set(2 * j + r, pair);
  }
}

template <class Value, int kColumns, class RowOffset>
__device__ __forceinline__ void add_values(Accumulator<float, kColumns>& scores, float scale_log2,
                                           const ScoreMask& mask, const RowOffset& row_offset,
                                           int first_key, int seqlen_k) {
  const bool whole = first_key + kColumns <= seqlen_k;
  first_key += 2 * (threadIdx.x % 4);
  const int num_keys = seqlen_k - first_key;
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const auto* const row =
        static_cast<const Value*>(mask.values) + row_offset(r) + first_key * mask.column;
    if (whole && mask.column == 1 && aligned<Value[2]>(row)) {
      add_row<16>(scores, scale_log2, r, [&](int column) { return load_pair(row + column); });
    } else {
      // Keys that do not exist are hidden later: any addend will do.
      const auto addend = [&](int key) {
        return key < num_keys ? static_cast<float>(row[key * mask.column]) : 0.0f;
      };
      add_row<2>(scores, scale_log2, r,
                 [&](int column) -> float2 { return {addend(column), addend(column + 1)}; });
    }
  }
}

__device__ __forceinline__ void prefetch_to_l1(const void* global) {
  asm volatile("prefetch.global.L1 [%0];" ::"l"(global));
}

// Brings the mask of the tile from first_key on into L1, unless rows do not lie together there, or
// are all the same one, which then is there already.
template <int kColumns, class RowOffset>
__device__ __forceinline__ void prefetch_mask(const ScoreMask& mask, const RowOffset& row_offset,
                                              int first_key) {
  if (mask.column != 1 || mask.row == 0) return;
  constexpr int kSectorBytes = 32;
  const int log2_bytes = mask.kind == ScoreMask::boolean ? 0 : mask.kind == ScoreMask::f32 ? 2 : 1;
#pragma unroll 1
  for (int r = 0; r < 2; ++r) {
    const auto* const row =
        static_cast<const uint8_t*>(mask.values) + ((row_offset(r) + first_key) << log2_bytes);
#pragma unroll 1
    for (int byte = threadIdx.x % 4 * kSectorBytes; byte < kColumns << log2_bytes;
         byte += 4 * kSectorBytes) {
      prefetch_to_l1(row + byte);
    }
  }
}

// Scores become exponents of 2 with the mask on them. row_offset(r): where this thread's row r
// begins in the mask; first_key: the tile's.
template <class Element, int kColumns, class RowOffset>
__device__ __forceinline__ void add_mask(Accumulator<float, kColumns>& scores, float scale_log2,
                                         const ScoreMask& mask, const RowOffset& row_offset,
                                         int first_key, int seqlen_k) {
  if (mask.kind == ScoreMask::boolean) {
    add_booleans(scores, scale_log2, mask, row_offset, first_key, seqlen_k);
  } else if (mask.kind == ScoreMask::element) {
    add_values<Element>(scores, scale_log2, mask, row_offset, first_key, seqlen_k);
  } else {
    add_values<float>(scores, scale_log2, mask, row_offset, first_key, seqlen_k);
  }
}

}  // namespace ffpa
