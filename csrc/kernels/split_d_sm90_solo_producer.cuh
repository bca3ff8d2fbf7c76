// The producer of the solo structure: one thread, which brings Q and the blocks of K and V in the
// order in which the consumers use them.
#pragma once

#include "kernels/split_d_sm90_solo_plan.cuh"
#include "prim/tma.cuh"

namespace ffpa {

template <class Plan>
struct SplitDSm90SoloProducer {
  const SoloParams& params;
  typename Plan::Smem& smem;
  typename Plan::Position position;

  __device__ __forceinline__ void load_block(const CUtensorMap& map, int first_key, int head,
                                             int batch) {
    Barrier& full = smem.blocks.full[position.slot];
    smem.blocks.free[position.slot].wait(position.parity ^ 1, "producer: ring slot free");
    full.arrive_expecting(Plan::kBlockBytes);
#pragma unroll 1
    for (int box = 0; box < Plan::kBoxes; ++box) {
      tma_load(map, smem.ring[position.slot] + box * Plan::kKvBoxBytes, full,
               {box * kBoxColumns, first_key, head, batch});
    }
    position.advance();
  }

  __device__ __forceinline__ void load_q(const QueryTile& tile, uint32_t round) {
    smem.q_free.wait(round & 1 ^ 1, "producer: Q free");
    smem.q_full.arrive_expecting(sizeof(smem.q));
#pragma unroll 1
    for (int box = 0; box < Plan::kBoxes; ++box) {
      tma_load(params.q, smem.q[box], smem.q_full,
               {box * kBoxColumns, tile.first_row, tile.head, tile.batch});
    }
  }

  __device__ __forceinline__ void run() {
    const SplitDSm90Problem& problem = params.problem;
    for (int round = 0;; ++round) {
      const int index = problem.order.index(round, blockIdx.x, gridDim.x);
      if (index >= problem.order.num_tiles()) break;
      const QueryTile tile = problem.order.tile(index);
      const int kv_head = tile.head / problem.heads_per_kv_head;

      int block = problem.key_blocks_of(tile, Plan::Bc).count - 1;
      load_block(params.k, block * Plan::Bc, kv_head, tile.batch);
      load_q(tile, round);  // after K, which need not wait for the last tile's O to leave
#pragma unroll 1
      for (; block > 0; --block) {
        load_block(params.k, (block - 1) * Plan::Bc, kv_head, tile.batch);
        load_block(params.v, block * Plan::Bc, kv_head, tile.batch);
      }
      load_block(params.v, 0, kv_head, tile.batch);
    }
  }
};

}  // namespace ffpa
