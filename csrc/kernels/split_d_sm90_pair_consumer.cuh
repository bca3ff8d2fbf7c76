// A consumer of the pair structure: a warpgroup with its 64 rows of S, of P and of this CTA's
// columns of O in registers.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/split_d_sm90_pair_plan.cuh"
#include "prim/cluster.cuh"
#include "prim/tma.cuh"
#include "prim/wgmma.cuh"
#include "tile/stage_rows.cuh"
#include "tile/warpgroup_softmax.cuh"

namespace ffpa {

template <class Plan>
struct SplitDSm90PairConsumer {
  using Smem = typename Plan::Smem;
  using Scores = typename Plan::Scores;
  using Weights = typename Plan::Weights;
  using Output = typename Plan::Output;

  const PairParams& params;
  Smem& smem;
  int consumer;   // of the CTA's warpgroups
  uint32_t rank;  // of the CTA
  typename Plan::Position position;
  uint32_t steps = 0;  // for which P has been sent: the phases of the exchanges of maxima and P

  __device__ __forceinline__ bool elected() const { return threadIdx.x % kWarpgroupThreads == 0; }
  __device__ __forceinline__ uint32_t at_peer(const void* smem_here) const {
    return remote_address(smem_here, rank ^ 1);
  }

  // Waits for the next piece.
  __device__ __forceinline__ const uint8_t* next_piece(const char* what) const {
    smem.pieces.full[position.slot].wait(position.parity, what);
    return smem.ring[position.slot];
  }

  __device__ __forceinline__ void give_back(int slot) {
    if (elected()) smem.pieces.free[slot].arrive();
  }

  // Closes the products on a piece as one group. The tensor cores may lag behind by two pieces;
  // `before` is how many they still had in hand.
  __device__ __forceinline__ void piece_issued(int before) {
    wgmma_commit();
    if (before == 2) {
      wgmma_wait<2>();
      give_back(position.slot_before(2));
    }
    position.advance();
  }

  // Until all products are done.
  template <class Sum, int kTileColumns>
  __device__ __forceinline__ void drain(Accumulator<Sum, kTileColumns>& result) {
    wgmma_wait<0>();
    pin(result);
    give_back(position.slot_before(2));
    give_back(position.slot_before(1));
  }

  // S = Q·Kᵀ
  __device__ __forceinline__ void issue_scores(Scores& scores) {
    const auto q = sum_along_rows(smem.q[0] + consumer * kWarpgroupRows * 128);
#pragma unroll
    for (int i = 0; i < Plan::kKPieces; ++i) {
      const auto k = sum_along_rows(next_piece("consumer: K piece full"));
      wgmma_fence();
#pragma unroll
      for (int d = 0; d < kBoxColumns; d += 16) {
        WgmmaInstruction<Plan::dtype, Plan::kKeys, false>::ss(
            scores.reg, q.at(i * Plan::kQBoxBytes + d * 2), k.at(d * 2), i + d > 0);
      }
      piece_issued(i < 2 ? i : 2);
    }
  }

  // O += P·V for 16 keys
  __device__ __forceinline__ void issue_output(Output& output, const uint32_t (&weights)[4],
                                               int before) {
    const auto v = sum_down_columns<Plan::kVBoxColumns>(next_piece("consumer: V piece full"),
                                                        Plan::kVBoxBytes);
    wgmma_fence();
    WgmmaInstruction<Plan::dtype, Plan::kColumns, true>::rs(output.reg, weights, v.at(0), 1);
    piece_issued(before);
  }

  // O += P·V over the own keys; `before`: pieces in flight.
  __device__ __forceinline__ void issue_own_output(Output& output, const Weights& weights,
                                                   int before) {
#pragma unroll
    for (int k = 0; k < Plan::kOwnPieces; ++k) {
      issue_output(output, weights.reg[k], before + k < 2 ? before + k : 2);
    }
  }

  // O += P·V over the peer's keys, each fragment of P read just before its use to save registers.
  __device__ __forceinline__ void issue_peer_output(Output& output) {
    smem.p_full[consumer].wait(steps & 1 ^ 1, "consumer: peer's P");
    const int thread = threadIdx.x % kWarpgroupThreads;
#pragma unroll
    for (int k = 0; k < Plan::kOwnPieces; ++k) {
      const uint4 p = reinterpret_cast<const uint4&>(smem.peer_p[consumer][k][thread]);
      issue_output(output, {p.x, p.y, p.z, p.w}, 2);
    }
    if (elected()) smem.p_full[consumer].arrive_expecting(Plan::kPBytes);  // for the next
    __syncwarp();
    if (threadIdx.x % 32 == 0) remote_arrive(at_peer(&smem.peer_p_free[consumer]));
  }

  __device__ __forceinline__ void send_maxima(const float (&max)[2]) {
    const uint32_t turn = steps & 1;
    Barrier& full = smem.max_full[turn][consumer];
    if (elected()) full.arrive_expecting(Plan::kRowsBytes);
    if (threadIdx.x % 4 == 0) {
      const int pair = threadIdx.x % kWarpgroupThreads / 4;
      remote_store(at_peer(&smem.peer_max[turn][consumer][pair]), {max[0], max[1]}, at_peer(&full));
    }
  }

  // Both CTAs then have the same maxima, of all keys of the step.
  __device__ __forceinline__ void take_maxima(float (&max)[2]) {
    const uint32_t turn = steps & 1;
    smem.max_full[turn][consumer].wait(steps / 2 & 1, "consumer: peer's maxima");
    const float2 peer = smem.peer_max[turn][consumer][threadIdx.x % kWarpgroupThreads / 4];
    max[0] = fmaxf(max[0], peer.x);
    max[1] = fmaxf(max[1], peer.y);
  }

  __device__ __forceinline__ void send_weights(const Weights& weights) {
    smem.peer_p_free[consumer].wait(steps & 1 ^ 1, "consumer: P free at the peer");
    ++steps;
    const uint32_t full = at_peer(&smem.p_full[consumer]);
#pragma unroll
    for (int k = 0; k < Plan::kKeys / 16; ++k) {
      const int thread = threadIdx.x % kWarpgroupThreads;
      remote_store(at_peer(smem.peer_p[consumer][k][thread]), weights.reg[k], full);
    }
  }

  // Row sums of both CTAs' keys.
  __device__ __forceinline__ void share_sums(float (&sum)[2], uint32_t parity) {
    Barrier& full = smem.sum_full[consumer];
    const int pair = threadIdx.x % kWarpgroupThreads / 4;
    if (elected()) full.arrive_expecting(Plan::kRowsBytes);
    if (threadIdx.x % 4 == 0) {
      remote_store(at_peer(&smem.peer_sum[consumer][pair]), {sum[0], sum[1]}, at_peer(&full));
    }
    full.wait(parity, "consumer: peer's row sums");
    const float2 peer = smem.peer_sum[consumer][pair];
    sum[0] += peer.x;
    sum[1] += peer.y;
  }

  // O through Q's shared memory, whose rows of this warpgroup have served.
  __device__ __forceinline__ void store_output(const Output& output, const float (&factor)[2],
                                               const QueryTile& tile) {
    const int row_offset = consumer * kWarpgroupRows;
    stage_rows<Plan::dtype>(output, factor, smem.q[0] + row_offset * 128, Plan::kQBoxBytes);
    fence_async_proxy();
    named_barrier_sync(Plan::NamedBarrier::kRowsStaged + consumer, kWarpgroupThreads);
    if (!elected()) return;
    if (static_cast<int>(rank) * Plan::kColumns < params.headdim) {
#pragma unroll 1
      for (int box = 0; box < Plan::kOutBoxes; ++box) {
        tma_store(params.out[rank], smem.q[box] + row_offset * 128,
                  {box * kBoxColumns, tile.first_row + row_offset, tile.head, tile.batch});
      }
      tma_store_commit();
      tma_store_wait_read();
    }
    smem.q_free.arrive();
  }

  // Waits for Q, and gives it its factor.
  __device__ __forceinline__ void take_query(uint32_t round) {
    smem.q_full.wait(round & 1, "consumer: Q full");
    if constexpr (std::is_same_v<QkSum<Plan::acc>, __half>) {
      scale_query(Plan::kKPieces, smem.q[0] + consumer * kWarpgroupRows * 128, Plan::kQBoxBytes,
                  params.problem.q_factor);
      named_barrier_sync(Plan::NamedBarrier::kRowsStaged + consumer, kWarpgroupThreads);
    }
  }

  __device__ __forceinline__ void attend(const QueryTile& tile, uint32_t round) {
    const SplitDSm90Problem& problem = params.problem;
    const KeyBlocks blocks = problem.key_blocks_of(tile, Plan::Bc);
    const int first_row = tile.first_row + consumer * kWarpgroupRows;
    const int own_keys = rank * Plan::kKeys;

    Scores scores;
    Weights weights;
    Output output;
    RowSoftmax<PvSum<Plan::acc>> softmax;
    softmax.reset();
    clear(output);

    float max[2];
    float factor[2];
    int block = blocks.count - 1;

    take_query(round);
    issue_scores(scores);
    drain(scores);
    if (block >= blocks.unmasked) {
      mask_keys(scores, problem, first_row, block * Plan::Bc + own_keys);
    }
    row_max(scores, max);
    send_maxima(max);
    take_maxima(max);
    softmax.move_base(max, problem.scale_log2, factor);
    softmax.exponentiate(scores, problem.scale_log2);
    pack_weights<Plan::dtype, PvSum<Plan::acc>>(scores, weights);
    send_weights(weights);

#pragma unroll 1
    for (; block > 0; --block) {
      issue_scores(scores);
      issue_own_output(output, weights, 2);
      pin(scores);
      if (block - 1 >= blocks.unmasked) {
        mask_keys(scores, problem, first_row, (block - 1) * Plan::Bc + own_keys);
      }
      row_max(scores, max);
      send_maxima(max);
      issue_peer_output(output);

      take_maxima(max);
      const bool moved = softmax.move_base(max, problem.scale_log2, factor);
      softmax.exponentiate(scores, problem.scale_log2);

      drain(output);
      pack_weights<Plan::dtype, PvSum<Plan::acc>>(scores, weights);
      send_weights(weights);
      if (moved) scale_rows(output, factor);
    }

    issue_own_output(output, weights, 0);
    issue_peer_output(output);
    softmax.add_up_quads();
    share_sums(softmax.sum, round & 1);
    float inverse_sum[2];
    float lse[2];
    softmax.finish(inverse_sum, lse);
    drain(output);

    if (rank == 0) store_lse(lse, problem, first_row, tile);
    store_output(output, inverse_sum, tile);
  }

  __device__ __forceinline__ void run() {
    const TileOrder& order = params.problem.order;
    for (int round = 0;; ++round) {
      const int index = order.index(round, blockIdx.x / kPairCtas, gridDim.x / kPairCtas);
      if (index >= order.num_tiles()) break;
      attend(order.tile(index), round);
    }
  }
};

}  // namespace ffpa
