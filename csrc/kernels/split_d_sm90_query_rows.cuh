// The 64 rows of a warpgroup in the shared memory of Q: Q first, and then O on its way out.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <type_traits>

#include "kernels/split_d_sm90_common.cuh"
#include "prim/mbarrier.cuh"
#include "prim/opaque.cuh"
#include "prim/tma.cuh"
#include "tile/stage_rows.cuh"

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
    if constexpr (std::is_same_v<QkSum<Plan::acc>, __half>) {
      scale_query(sizeof(smem.q) / Plan::kQBoxBytes, begin(), Plan::kQBoxBytes, factor);
      sync();
    }
  }

  // Stores O, `boxes` of its boxes of columns, and lets the next tile's Q come.
  template <class Output>
  __device__ __forceinline__ void store(const Output& output, const float (&factor)[2],
                                        const CUtensorMap& out, int boxes,
                                        const QueryTile& tile) const {
    stage_rows<Plan::dtype>(output, factor, begin(), Plan::kQBoxBytes);
    fence_async_proxy();
    sync();
    if (!elected()) return;
    const int first_row = tile.first_row + consumer * kWarpgroupRows;
#pragma unroll 1
    for (int box = 0; box < boxes; ++box) {
      tma_store(out, begin() + box * Plan::kQBoxBytes,
                {box * kBoxColumns, first_row, tile.head, tile.batch});
    }
    tma_store_commit();
    tma_store_wait_read();
    smem.q_free.arrive();
  }

 private:
  __device__ __forceinline__ void sync() const {
    named_barrier_sync(Plan::NamedBarrier::kRowsStaged + consumer, kWarpgroupThreads);
  }
};

}  // namespace ffpa
