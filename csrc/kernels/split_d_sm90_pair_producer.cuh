// The producer of the pair structure: one warp of each CTA brings the pieces of K and V that this
// CTA needs, in the order in which its consumers use them, and another brings Q, so that the next
// tile's K need not wait for the last one's O to leave.
//
// The consumers use a piece every few hundred cycles, and whatever a warp does between two loads
// delays them: all of its threads wait and count together, so that the compiler keeps everything in
// uniform registers, and one of them loads.
#pragma once

#include <cstdint>

#include "kernels/split_d_sm90_pair_plan.cuh"
#include "kernels/split_d_sm90_query_rows.cuh"
#include "prim/tma.cuh"

namespace ffpa {

template <class Plan>
struct SplitDSm90PairProducer {
  using Smem = typename Plan::Smem;
  using Position = typename Plan::Position;

  const PairParams& params;
  Smem& smem;
  uint32_t rank;  // of the CTA
  bool leader;    // of the warp's threads
  Position position;

  // Brings a piece, from box `first` of its matrix on, into the next slot.
  template <int kColumns = kBoxColumns>
  __device__ __forceinline__ void load(const PieceMap& matrix, int boxes, int box_bytes, int first,
                                       int key, int head, int batch) {
    const int slot = position.slot;
    Barrier& full = smem.pieces.full[slot];
    smem.pieces.free[slot].wait(position.parity ^ 1, "producer: ring slot free");
    if (leader) {
      full.arrive_expecting(boxes * box_bytes);
      tma_load_piece<kColumns>(matrix, smem.ring[slot], boxes, box_bytes, full, first, key, head,
                               batch);
    }
    position.advance();
  }

  __device__ __forceinline__ void load_k(int key, int head, int batch) {
#pragma unroll 1
    for (int box = 0; box < Plan::kBoxes; box += Plan::kKBoxes) {
      load(params.k, Plan::kKBoxes, Plan::kKBoxBytes, box, key, head, batch);
    }
  }

  // V for the keys whose scores one CTA computes.
  __device__ __forceinline__ void load_v(const PairColumns& columns, int key, int head, int batch) {
    const int end = key + Plan::kKeys;
    if constexpr (Plan::kSidePieces > 0) {
#pragma unroll 1
      for (int side_key = key; side_key < end; side_key += Plan::kSideKeys) {
        load<Plan::kSideBoxColumns>(columns.v_side, Plan::kSideBoxes, Plan::kSideBoxBytes, 0,
                                    side_key, head, batch);
      }
    }
#pragma unroll 1
    for (; key < end; key += 16 * Plan::kPieceSteps) {
      load<Plan::kVBoxColumns>(columns.v, Plan::kVBoxes, Plan::kVBoxBytes, 0, key, head, batch);
    }
  }

  // What a tile needs: the columns of Q that consumers keep in registers, K of the last block, and
  // then for each block V for the own and for the peer's keys, and K of the next block before or
  // between them.
  __device__ __forceinline__ void load_pieces(const QueryTile& tile) {
    const PairColumns& columns = params.columns[rank];
    const auto blocks = params.problem.key_range_of<Plan>(tile);
    const int head = tile.head / params.problem.heads_per_kv_head;
    const int batch = tile.batch;
#pragma unroll 1
    for (int piece = 0; piece < Plan::kQPieces; ++piece) {
      load<Plan::kQPieceColumns>(params.q_piece, 1,
                                 params.problem.query_bytes<Plan>(Plan::kQPieceBytes), piece,
                                 tile.first_row, tile.head, batch);
    }
#pragma unroll 1
    for (int block = blocks.end; block >= blocks.first; --block) {
#pragma unroll 1
      for (uint32_t half = 0; half < kPairCtas; ++half) {
        if (half == (Plan::kOwnFirst ? 1 : 0) && block > blocks.first) {
          load_k((block - 1) * Plan::Bc + rank * Plan::kKeys, head, batch);
        }
        if (block < blocks.end) {
          load_v(columns, block * Plan::Bc + (rank ^ half) * Plan::kKeys, head, batch);
        }
      }
    }
  }

  __device__ __forceinline__ void run(int warp) {
    const SplitDSm90Problem& problem = params.problem;
    const int worker = blockIdx.x / kPairCtas;
    const int num_workers = gridDim.x / kPairCtas;
    if (warp == 0) {
      problem.for_each_tile<Plan>(worker, num_workers,
                                  [&](const QueryTile& tile, int) { load_pieces(tile); });
    } else if (warp == 1) {
      problem.for_each_tile<Plan>(worker, num_workers, [&](const QueryTile& tile, int round) {
        load_query<Plan>(smem, params.q, problem, Plan::kQRegisterBoxes, tile, round, leader);
      });
    }
  }
};

}  // namespace ffpa
