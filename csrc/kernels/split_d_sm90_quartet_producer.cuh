// The producers of the quartet structure: three warps of each CTA, one for Q and one for the ring
// of each consumer, which brings the pieces of K and V that this member needs in the order of use.
// As in the pair, all threads of a warp wait and count together, and one loads.
#pragma once

#include <cstdint>

#include "kernels/split_d_sm90_quartet_plan.cuh"
#include "kernels/split_d_sm90_query_rows.cuh"
#include "prim/tma.cuh"

namespace ffpa {

template <class Plan>
struct SplitDSm90QuartetProducer {
  using Smem = typename Plan::Smem;
  using Position = typename Plan::Position;

  const QuartetParams& params;
  Smem& smem;
  uint32_t rank;  // of the CTA
  bool leader;    // of the warp's threads
  Position position;

  // Brings a piece of the next `boxes` boxes of columns, from box `first` on, into the next slot.
  __device__ __forceinline__ void load(const PieceMap& matrix, int consumer, int boxes,
                                       int box_bytes, int first, int key, int head, int batch) {
    Ring<Plan::kSlots>& ring = smem.pieces[consumer];
    const int slot = position.slot;
    ring.free[slot].wait(position.parity ^ 1, "producer: ring slot free");
    if (leader) {
      Barrier& full = ring.full[slot];
      full.arrive_expecting(boxes * box_bytes);
      tma_load_piece(matrix, smem.ring[consumer][slot], boxes, box_bytes, full, first, key, head,
                     batch);
    }
    position.advance();
  }

  __device__ __forceinline__ void load_k(int consumer, int key, int head, int batch) {
#pragma unroll 1
    for (int box = 0; box < Plan::kKPieces; ++box)
      load(params.k, consumer, 1, Plan::kKPieceBytes, box, key, head, batch);
  }

  // Member by member, this one's keys first: their P needs no journey.
  __device__ __forceinline__ void load_v(int consumer, int member, int first_key, int head,
                                         int batch) {
#pragma unroll 1
    for (int piece = 0; piece < Plan::kVPieces; ++piece) {
      const int key = first_key + (piece * Plan::kPieceKeys + member * Plan::kKeys) % Plan::Bc;
      load(params.v[member], consumer, Plan::kVBoxes, Plan::kVBoxBytes, 0, key, head, batch);
    }
  }

  __device__ __forceinline__ void load_pieces(int consumer, const QueryTile& tile) {
    const SplitDSm90Problem& problem = params.problem;
    const int member = rank * Plan::kConsumers + consumer;
    const int own_keys = member * Plan::kKeys;
    const int kv_head = tile.head / problem.heads_per_kv_head;
    const auto blocks = problem.key_range_of<Plan>(tile);
    int block = blocks.end - 1;
#pragma unroll 1
    for (int piece = 0; piece < Plan::kQPieces; ++piece) {
      load(params.q_piece, consumer, 1, problem.query_bytes<Plan>(Plan::kQBoxBytes), piece,
           tile.first_row, tile.head, tile.batch);
    }
    load_k(consumer, block * Plan::Bc + own_keys, kv_head, tile.batch);
#pragma unroll 1
    for (; block > blocks.first; --block) {
      load_k(consumer, (block - 1) * Plan::Bc + own_keys, kv_head, tile.batch);
      load_v(consumer, member, block * Plan::Bc, kv_head, tile.batch);
    }
    load_v(consumer, member, blocks.first * Plan::Bc, kv_head, tile.batch);
  }

  __device__ __forceinline__ void run(int warp) {
    const SplitDSm90Problem& problem = params.problem;
    const int worker = blockIdx.x / kQuartetCtas;
    const int num_workers = gridDim.x / kQuartetCtas;
    if (warp < Plan::kConsumers) {
      problem.for_each_tile<Plan>(worker, num_workers,
                                  [&](const QueryTile& tile, int) { load_pieces(warp, tile); });
    } else if (warp == Plan::kConsumers) {
      problem.for_each_tile<Plan>(worker, num_workers, [&](const QueryTile& tile, int round) {
        load_query<Plan>(smem, params.q, problem, Plan::kQRegisterBoxes, tile, round, leader);
      });
    }
  }
};

}  // namespace ffpa
