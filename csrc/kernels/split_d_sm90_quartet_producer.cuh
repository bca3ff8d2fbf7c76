// The producers of the quartet structure: three threads of each CTA, one for Q and one for the ring
// of each consumer, which brings the pieces of K and V that this member needs in the order of use.
#pragma once

#include <cstdint>

#include "kernels/split_d_sm90_quartet_plan.cuh"
#include "prim/tma.cuh"

namespace ffpa {

template <class Plan>
struct SplitDSm90QuartetProducer {
  using Smem = typename Plan::Smem;
  using Position = typename Plan::Position;

  const QuartetParams& params;
  Smem& smem;
  uint32_t rank;  // of the CTA
  Position position;

  // Calls visit(tile, round) for each tile of this cluster.
  template <class Visit>
  __device__ __forceinline__ void for_each_tile(const Visit& visit) const {
    const TileOrder& order = params.problem.order;
    for (int round = 0;; ++round) {
      const int index = order.index(round, blockIdx.x / kQuartetCtas, gridDim.x / kQuartetCtas);
      if (index >= order.num_tiles()) break;
      visit(order.tile(index), round);
    }
  }

  __device__ __forceinline__ void bring_queries() const {
    for_each_tile([&](const QueryTile& tile, int round) {
      smem.q_free.wait(round & 1 ^ 1, "producer: Q free");
      smem.q_full.arrive_expecting(sizeof(smem.q));
#pragma unroll 1
      for (int box = 0; box < Plan::kKPieces; ++box) {
        tma_load(params.q, smem.q[box], smem.q_full,
                 {box * kBoxColumns, tile.first_row, tile.head, tile.batch});
      }
    });
  }

  // The barrier of the next slot, once that is free, expecting so many bytes.
  __device__ __forceinline__ Barrier& claim(Ring<Plan::kSlots>& ring, uint32_t bytes) const {
    ring.free[position.slot].wait(position.parity ^ 1, "producer: ring slot free");
    Barrier& full = ring.full[position.slot];
    full.arrive_expecting(bytes);
    return full;
  }

  __device__ __forceinline__ void load_k(int consumer, int first_key, int head, int batch) {
#pragma unroll 1
    for (int piece = 0; piece < Plan::kKPieces; ++piece) {
      Barrier& full = claim(smem.pieces[consumer], Plan::kKPieceBytes);
      tma_load(params.k, smem.ring[consumer][position.slot], full,
               {piece * kBoxColumns, first_key, head, batch});
      position.advance();
    }
  }

  // Member by member, this one's keys first: their P needs no journey.
  __device__ __forceinline__ void load_v(int consumer, int member, int first_key, int head,
                                         int batch) {
#pragma unroll 1
    for (int piece = 0; piece < Plan::kVPieces; ++piece) {
      const int key = first_key + (piece * Plan::kPieceKeys + member * Plan::kKeys) % Plan::Bc;
      Barrier& full = claim(smem.pieces[consumer], Plan::kVPieceBytes);
#pragma unroll 1
      for (int box = 0; box < Plan::kVBoxes; box += params.v_boxes_per_load) {
        tma_load_panels(params.v[member],
                        smem.ring[consumer][position.slot] + box * Plan::kVBoxBytes, full,
                        {box * kBoxColumns, key, head, batch});
      }
      position.advance();
    }
  }

  __device__ __forceinline__ void bring_keys(int consumer) {
    const SplitDSm90Problem& problem = params.problem;
    const int member = rank * Plan::kConsumers + consumer;
    const int own_keys = member * Plan::kKeys;
    for_each_tile([&](const QueryTile& tile, int) {
      const int kv_head = tile.head / problem.heads_per_kv_head;
      int block = problem.key_blocks_of(tile, Plan::Bc).count - 1;
      load_k(consumer, block * Plan::Bc + own_keys, kv_head, tile.batch);
#pragma unroll 1
      for (; block > 0; --block) {
        load_k(consumer, (block - 1) * Plan::Bc + own_keys, kv_head, tile.batch);
        load_v(consumer, member, block * Plan::Bc, kv_head, tile.batch);
      }
      load_v(consumer, member, 0, kv_head, tile.batch);
    });
  }

  // One warp for each ring, and the next for Q.
  __device__ __forceinline__ void run() {
    if (threadIdx.x % 32 != 0) return;
    const int warp = threadIdx.x % kWarpgroupThreads / 32;
    if (warp < Plan::kConsumers) bring_keys(warp);
    if (warp == Plan::kConsumers) bring_queries();
  }
};

}  // namespace ffpa
