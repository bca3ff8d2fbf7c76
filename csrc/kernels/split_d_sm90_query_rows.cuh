// Q in shared memory: how it comes, and the 64 rows of a warpgroup in it.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/split_d_sm90_common.cuh"
#include "prim/mbarrier.cuh"
#include "prim/opaque.cuh"
#include "prim/tma.cuh"

namespace ffpa {

// One thread of a warpgroup.
__device__ __forceinline__ bool elected() {
  return threadIdx.x % kWarpgroupThreads == 0;
}

// Where a tile's Q lies, and the parity of the phase that its barriers are in.
template <class Plan>
struct QueryPlace {
  uint32_t buffer;
  uint32_t parity;

  __device__ __forceinline__ explicit QueryPlace(uint32_t round)
      : buffer(round % Plan::kQueryBuffers), parity(round / Plan::kQueryBuffers & 1) {}
};

template <class Plan>
struct QueryRows {
  static constexpr int kBoxes = sizeof(Plan::Smem::q) / Plan::kQueryBuffers / Plan::kQBoxBytes;

  typename Plan::Smem& smem;
  int consumer;  // of the CTA's warpgroups
  QueryPlace<Plan> place;

  // The rows in the first box of columns; the next is Plan::kQBoxBytes on.
  __device__ __forceinline__ uint8_t* begin() const {
    return smem.q[place.buffer * kBoxes] + opaque(consumer) * kWarpgroupRows * 128;
  }

  // Waits for Q, and gives it its factor.
  __device__ __forceinline__ void take(float factor) const {
    smem.q_full[place.buffer].wait(place.parity, "consumer: Q full");
    if constexpr (std::is_same_v<typename Plan::QkSum, __half>) {
      scale_query(kBoxes, begin(), Plan::kQBoxBytes, factor);
      named_barrier_sync(Plan::NamedBarrier::kQueryScaled + consumer, kWarpgroupThreads);
    }
  }

  // Lets another tile's Q come, once the products with this one are done.
  __device__ __forceinline__ void give_back() const {
    if (elected()) smem.q_free[place.buffer].arrive();
  }
};

// Brings the Q of a tile, from box `first` of its columns on, by a warp whose `leader` loads.
template <class Plan>
__device__ __forceinline__ void load_query(typename Plan::Smem& smem, const PieceMap& query,
                                           const SplitDSm90Problem& problem, int first,
                                           const QueryTile& tile, uint32_t round, bool leader) {
  constexpr int kBoxes = QueryRows<Plan>::kBoxes;
  const QueryPlace<Plan> place{round};
  if (Plan::kQueryBuffers > 1 && round > 0) {
    // Not beside what the tile before waits for at its start.
    const QueryPlace<Plan> before{round - 1};
    smem.q_full[before.buffer].wait_asleep(before.parity, "producer: Q before full");
  }
  smem.q_free[place.buffer].wait_asleep(place.parity ^ 1, "producer: Q free");
  if (!leader) return;
  Barrier& full = smem.q_full[place.buffer];
  full.arrive_expecting(problem.query_bytes<Plan>(kBoxes * Plan::kQBoxBytes));
  tma_load_piece(query, smem.q[place.buffer * kBoxes], kBoxes, Plan::kQBoxBytes, full, first,
                 tile.first_row, tile.head, tile.batch);
}

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
