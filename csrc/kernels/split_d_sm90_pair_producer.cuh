// The producer of the pair structure: one thread of each CTA, which brings Q and the pieces of K
// and V that this CTA needs, in the order in which its consumers use them.
#pragma once

#include <cstdint>

#include "kernels/split_d_sm90_pair_plan.cuh"
#include "prim/tma.cuh"

namespace ffpa {

template <class Plan>
struct SplitDSm90PairProducer {
  using Smem = typename Plan::Smem;
  using Position = typename Plan::Position;

  const PairParams& params;
  Smem& smem;
  uint32_t rank;  // of the CTA
  Position position;

  // The barrier of the next slot, once that is free, expecting so many bytes.
  __device__ __forceinline__ Barrier& claim(uint32_t bytes) {
    smem.pieces.free[position.slot].wait(position.parity ^ 1, "producer: ring slot free");
    Barrier& full = smem.pieces.full[position.slot];
    full.arrive_expecting(bytes);
    return full;
  }

  __device__ __forceinline__ void load_k(int first_key, int head, int batch) {
#pragma unroll 1
    for (int piece = 0; piece < Plan::kKPieces; ++piece) {
      Barrier& full = claim(Plan::kKPieceBytes);
      tma_load(params.k, smem.ring[position.slot], full,
               {piece * kBoxColumns, first_key, head, batch});
      position.advance();
    }
  }

  __device__ __forceinline__ void load_v(int first_key, int head, int batch) {
#pragma unroll 1
    for (int piece = 0; piece < Plan::kVPieces; ++piece) {
      // The CTA's own keys first: their P needs no journey.
      const int key = first_key + (piece * Plan::kPieceKeys + rank * Plan::kKeys) % Plan::Bc;
      Barrier& full = claim(Plan::kVPieceBytes);
#pragma unroll 1
      for (int box = 0; box < Plan::kVBoxes; box += params.v_boxes_per_load) {
        tma_load_panels(params.v[rank], smem.ring[position.slot] + box * Plan::kVBoxBytes, full,
                        {box * Plan::kVBoxColumns, key, head, batch});
      }
      position.advance();
    }
  }

  __device__ __forceinline__ void load_q(const QueryTile& tile, uint32_t round) {
    smem.q_free.wait(round & 1 ^ 1, "producer: Q free");
    smem.q_full.arrive_expecting(sizeof(smem.q));
#pragma unroll 1
    for (int box = 0; box < Plan::kKPieces; ++box) {
      tma_load(params.q, smem.q[box], smem.q_full,
               {box * kBoxColumns, tile.first_row, tile.head, tile.batch});
    }
  }

  __device__ __forceinline__ void run() {
    const SplitDSm90Problem& problem = params.problem;
    for (int round = 0;; ++round) {
      const int index = problem.order.index(round, blockIdx.x / kPairCtas, gridDim.x / kPairCtas);
      if (index >= problem.order.num_tiles()) break;
      const QueryTile tile = problem.order.tile(index);
      const int kv_head = tile.head / problem.heads_per_kv_head;

      int block = problem.key_blocks_of(tile, Plan::Bc).count - 1;
      load_k(block * Plan::Bc + rank * Plan::kKeys, kv_head, tile.batch);
      load_q(tile, round);  // after K, which need not wait for the last tile's O to leave
#pragma unroll 1
      for (; block > 0; --block) {
        load_k((block - 1) * Plan::Bc + rank * Plan::kKeys, kv_head, tile.batch);
        load_v(block * Plan::Bc, kv_head, tile.batch);
      }
      load_v(0, kv_head, tile.batch);
    }
  }
};

}  // namespace ffpa
