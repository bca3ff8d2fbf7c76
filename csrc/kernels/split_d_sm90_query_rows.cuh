// The 64 rows of a warpgroup in the shared memory of Q.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/split_d_sm90_common.cuh"
#include "prim/mbarrier.cuh"
#include "prim/opaque.cuh"

namespace ffpa {

// One thread of a warpgroup.
__device__ __forceinline__ bool elected() {
  return threadIdx.x % kWarpgroupThreads == 0;
}

template <class Plan>
struct QueryRows {
  typename Plan::Smem& smem;
  int consumer;  // of the CTA's warpgroups

  // The rows in the first box of columns; the next is Plan::kQBoxBytes on.
  __device__ __forceinline__ uint8_t* begin() const {
    return smem.q[0] + opaque(consumer) * kWarpgroupRows * 128;
  }

  // Waits for Q, and gives it its factor.
  __device__ __forceinline__ void take(uint32_t round, float factor) const {
    smem.q_full.wait(round & 1, "consumer: Q full");
    if constexpr (std::is_same_v<typename Plan::QkSum, __half>) {
      scale_query(sizeof(smem.q) / Plan::kQBoxBytes, begin(), Plan::kQBoxBytes, factor);
      named_barrier_sync(Plan::NamedBarrier::kQueryScaled + consumer, kWarpgroupThreads);
    }
  }

  // Lets the next tile's Q come, once the products with this one are done.
  __device__ __forceinline__ void give_back() const {
    if (elected()) smem.q_free.arrive();
  }
};

// Zeros in the rows that no tile of packed rows has, by all threads of a CTA before they meet. What
// lay there could make a neighbour's exponents round in another way (RowSoftmax::exponentiate).
template <class Plan>
__device__ __forceinline__ void clear_missing_rows(typename Plan::Smem& smem,
                                                   const PackedOrder& packed) {
#pragma unroll 1
  for (auto& box : smem.q) {
    const int begin = packed.rows() * kBoxColumns * 2;
    for (int byte = begin + 16 * threadIdx.x; byte < Plan::kQBoxBytes; byte += 16 * blockDim.x)
      *reinterpret_cast<uint4*>(box + byte) = {};
  }
  fence_async_proxy();
}

}  // namespace ffpa
