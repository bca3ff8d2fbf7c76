// Warpgroup matrix products: operands in shared memory, accumulator tiles, and their ordering.
//
// wgmma runs behind the instruction stream. The order that makes it right: `fence` after ordinary
// code touched registers that the next products use, the products, `commit` to close a group, and
// `wait<k>` until at most k groups are in flight before their registers are read.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "config.cuh"
#include "prim/mbarrier.cuh"
#include "prim/wgmma_instructions.cuh"

namespace ffpa {

constexpr int kWarpgroupThreads = 128;

// A matrix in shared memory as wgmma sees it: boxes of 64 or 32 columns (128 or 64 bytes a row,
// with the swizzle of that width), each from a multiple of 1024 bytes on. Only the low word of a
// descriptor varies; keeping the high one a constant spares the compiler a register each.
template <int kBoxColumns>
struct SmemMatrix {
  static_assert(kBoxColumns == 64 || kBoxColumns == 32);
  static constexpr uint32_t kSwizzle = (kBoxColumns == 64 ? 1u : 2u) << 30;
  static constexpr uint32_t kEightRows = 8 * kBoxColumns * 2 >> 4;
  uint32_t low;

  __device__ __forceinline__ uint64_t at(uint32_t byte_offset) const {
    return (uint64_t{kSwizzle | kEightRows} << 32) | (low + (byte_offset >> 4));
  }
};

// A descriptor's address field. In a cluster, shared addresses carry the CTA's rank above it.
__device__ __forceinline__ uint32_t descriptor_address(const void* smem) {
  return (shared_address(smem) & 0x3ffff) >> 4;
}

// The product sums along the rows of the boxes: A = Q and B = Kᵀ.
__device__ __forceinline__ SmemMatrix<64> sum_along_rows(const void* smem) {
  return {descriptor_address(smem)};
}

// The product sums down the columns of the boxes: B = V. A box is `box_bytes` from the next.
template <int kBoxColumns>
__device__ __forceinline__ SmemMatrix<kBoxColumns> sum_down_columns(const void* smem,
                                                                    uint32_t box_bytes) {
  return {descriptor_address(smem) | (box_bytes >> 4) << 16};
}

// The accumulators of a 64 × kColumns tile, as pairs of neighbouring columns. Thread t of the
// warpgroup holds rows 16 (t / 32) + (t % 32) / 4 and that + 8: its pair i is columns
// 8 (i / 2) + 2 (t % 4) and the next, of the first row if i is even and of the second if it is odd.
template <class Sum, int kColumns>
struct Accumulator;

template <int kColumns>
struct Accumulator<float, kColumns> {
  static constexpr int kPairs = kColumns / 4;
  static constexpr int kRegisters = 2 * kPairs;
  float reg[kRegisters];

  __device__ __forceinline__ float2 get(int pair) const {
    return {reg[2 * pair], reg[2 * pair + 1]};
  }
  __device__ __forceinline__ void set(int pair, float2 value) {
    reg[2 * pair] = value.x;
    reg[2 * pair + 1] = value.y;
  }
};

template <int kColumns>
struct Accumulator<__half, kColumns> {
  static constexpr int kPairs = kColumns / 4;
  static constexpr int kRegisters = kPairs;
  uint32_t reg[kRegisters];

  __device__ __forceinline__ float2 get(int pair) const {
    return __half22float2(reinterpret_cast<const __half2&>(reg[pair]));
  }
  __device__ __forceinline__ void set(int pair, float2 value) {
    reinterpret_cast<__half2&>(reg[pair]) = __float22half2_rn(value);
  }
};

template <class Sum, int kColumns>
__device__ __forceinline__ void clear(Accumulator<Sum, kColumns>& tile) {
#pragma unroll
  for (int i = 0; i < tile.kRegisters; ++i)
    tile.reg[i] = 0;
}

__device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" ::: "memory");
}

__device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}

template <int kInFlight>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kInFlight) : "memory");
}

// Keeps the compiler from moving reads or writes of a tile across this point: it does not know that
// a product in flight still owns the registers.
template <class Sum, int kColumns>
__device__ __forceinline__ void pin(Accumulator<Sum, kColumns>& tile) {
#pragma unroll
  for (int i = 0; i < tile.kRegisters; ++i) {
    if constexpr (std::is_same_v<Sum, float>) {
      asm volatile("" : "+f"(tile.reg[i])::"memory");
    } else {
      asm volatile("" : "+r"(tile.reg[i])::"memory");
    }
  }
}

}  // namespace ffpa
