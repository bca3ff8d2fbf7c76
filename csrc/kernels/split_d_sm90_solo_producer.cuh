// The producer of the solo structure: one warp brings the blocks of K and V in the order in which
// the consumers use them, and another brings Q, so that the next tile's K need not wait for the
// last one's O to leave. All threads of a warp wait and count, and one of them, `leader`, loads.
#pragma once

#include "kernels/split_d_sm90_query_rows.cuh"
#include "kernels/split_d_sm90_solo_plan.cuh"
#include "prim/tma.cuh"

namespace ffpa {

template <class Plan>
struct SplitDSm90SoloProducer {
  const SoloParams& params;
  typename Plan::Smem& smem;
  bool leader;
  typename Plan::Position position;

  __device__ __forceinline__ void load_block(const PieceMap& matrix, int first_key, int head,
                                             int batch) {
    const int slot = position.slot;
    Barrier& full = smem.blocks.full[slot];
    smem.blocks.free[slot].wait(position.parity ^ 1, "producer: ring slot free");
    if (leader) {
      full.arrive_expecting(Plan::kBlockBytes);
      tma_load_piece(matrix, smem.ring[slot], Plan::kBoxes, Plan::kKvBoxBytes, full, 0, first_key,
                     head, batch);
    }
    position.advance();
  }

  // A tile's K and V, from the last block to the first.
  template <class Blocks>
  __device__ __forceinline__ void load_blocks(const Blocks& blocks, int head, int batch) {
#pragma unroll 1
    for (int block = blocks.end; block >= blocks.first; --block) {
      if (block > blocks.first) load_block(params.k, (block - 1) * Plan::Bc, head, batch);
      if (block < blocks.end) load_block(params.v, block * Plan::Bc, head, batch);
    }
  }

  __device__ __forceinline__ void run(int warp) {
    const SplitDSm90Problem& problem = params.problem;
    const int worker = blockIdx.x;
    const int num_workers = gridDim.x;
    if (warp == 0) {
      problem.for_each_tile<Plan>(worker, num_workers, [&](const QueryTile& tile, int) {
        load_blocks(problem.key_range_of<Plan>(tile), tile.head / problem.heads_per_kv_head,
                    tile.batch);
      });
    } else if (warp == 1) {
      problem.for_each_tile<Plan>(worker, num_workers, [&](const QueryTile& tile, int round) {
        load_query<Plan>(smem, params.q, problem, 0, tile, round, leader);
      });
    }
  }
};

}  // namespace ffpa
