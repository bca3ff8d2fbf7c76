// A consumer of the pair structure: a warpgroup with its 64 rows of S, of P and of this CTA's
// columns of O in registers.
#pragma once

#include <cstdint>

#include "kernels/split_d_sm90_pair_plan.cuh"
#include "kernels/split_d_sm90_query_fragments.cuh"
#include "kernels/split_d_sm90_query_rows.cuh"
#include "kernels/split_d_sm90_store_split.cuh"
#include "prim/cluster.cuh"
#include "prim/opaque.cuh"
#include "prim/wgmma.cuh"
#include "tile/warpgroup_softmax.cuh"

namespace ffpa {

template <class Plan>
struct SplitDSm90PairConsumer {
  using Smem = typename Plan::Smem;
  using Query = QueryFragments<Plan>;
  using Scores = typename Plan::Scores;
  using Weights = typename Plan::Weights;
  using Output = typename Plan::Output;

  const PairParams& params;
  Smem& smem;
  int consumer;   // of the CTA's warpgroups
  uint32_t rank;  // of the CTA
  typename Plan::Position position;
  uint32_t steps = 0;  // for which P has been sent: the phases of the exchanges of maxima and P

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

  // Closes the products on a piece as one group and gives back the oldest piece. `before`: how many
  // came before since the last drain, where they are few.
  __device__ __forceinline__ void piece_issued(int before) {
    wgmma_commit();
    if (before >= Plan::kBehind) {
      wgmma_wait<Plan::kBehind>();
      give_back(position.slot_before(Plan::kBehind));
    }
    position.advance();
  }

  // Until all products are done.
  template <class Sum, int kTileColumns>
  __device__ __forceinline__ void drain(Accumulator<Sum, kTileColumns>& result) {
    wgmma_wait<0>();
    pin(result);
#pragma unroll
    for (int age = Plan::kBehind; age > 0; --age)
      give_back(position.slot_before(age));
  }

  // S = Q·Kᵀ; `before` as in piece_issued().
  __device__ __forceinline__ void issue_scores(Scores& scores, const Query& query, int before) {
    const auto q = sum_along_rows(QueryRows<Plan>{smem, consumer, QueryPlace<Plan>{0}}.begin());
#pragma unroll
    for (int i = 0; i < Plan::kKPieces; ++i) {
      const auto k = sum_along_rows(next_piece("consumer: K piece full"));
      wgmma_fence();
#pragma unroll
      for (int d = 0; d < kBoxColumns * Plan::kKBoxes; d += 16) {
        const int in_piece = d / kBoxColumns;
        const int box = i * Plan::kKBoxes + in_piece;
        if (box == Plan::kBoxes) break;
        const int step = d % kBoxColumns / 16;
        query.multiply(scores, q, box, step, k.at(in_piece * Plan::kKBoxBytes + step * 32));
      }
      piece_issued(before + i);
    }
  }

  // O += P·V for a piece of V over the keys of one CTA; weights(step) are P of 16 keys.
  template <class GetWeights>
  __device__ __forceinline__ void issue_output(Output& output, int piece, const GetWeights& weights,
                                               int before) {
    const uint8_t* const v_smem = next_piece("consumer: V piece full");
    if (piece < Plan::kSidePieces) {
      if constexpr (Plan::kSidePieces > 0) {
        constexpr int kSteps = Plan::kSideKeys / 16;
        const auto v = sum_down_columns<Plan::kSideBoxColumns>(v_smem, Plan::kSideBoxBytes);
        auto* const side = output.reg + output.kRegisters * Plan::kVColumns / Plan::kColumns;
#pragma unroll
        for (int i = 0; i < kSteps; ++i) {
          const uint32_t (&p)[4] = weights(piece * kSteps + i);
          wgmma_fence();
          WgmmaInstruction<Plan::dtype, Plan::kSideColumns, true>::rs(
              side, p, v.at(i * 16 * Plan::kSideBoxColumns * 2), 1);
        }
      }
    } else {
      const auto v = sum_down_columns<Plan::kVBoxColumns>(v_smem, Plan::kVBoxBytes);
#pragma unroll
      for (int i = 0; i < Plan::kPieceSteps; ++i) {
        const uint32_t (&p)[4] = weights((piece - Plan::kSidePieces) * Plan::kPieceSteps + i);
        wgmma_fence();
        WgmmaInstruction<Plan::dtype, Plan::kVColumns, true>::rs(
            output.reg, p, v.at(i * 16 * Plan::kVBoxColumns * 2), 1);
      }
    }
    piece_issued(before);
  }

  // O += P·V over the own keys.
  __device__ __forceinline__ void issue_own_output(Output& output, const Weights& weights,
                                                   int before) {
    const auto own = [&](int step) -> const uint32_t (&)[4] { return weights.reg[step]; };
#pragma unroll
    for (int piece = 0; piece < Plan::kVPieces; ++piece) {
      issue_output(output, piece, own, before + piece);
    }
  }

  // O += P·V over the peer's keys, with after(piece) after each piece. Fragments of P are read just
  // before their use to save registers, and so is where they lie computed.
  template <class After>
  __device__ __forceinline__ void issue_peer_output(Output& output, const After& after) {
    const int thread = opaque(threadIdx.x) % kWarpgroupThreads;
    const auto peer = [&](int step) -> const uint32_t (&)[4] {
      return smem.peer_p[consumer][step][thread];
    };
    smem.p_full[consumer].wait(steps & 1 ^ 1, "consumer: peer's P");
#pragma unroll
    for (int piece = 0; piece < Plan::kVPieces; ++piece) {
      issue_output(output, piece, peer, Plan::kBehind);
      if (piece == Plan::kVPieces - 1) {
        if (elected()) smem.p_full[consumer].arrive_expecting(Plan::kPBytes);  // for the next
        __syncwarp();
        if (threadIdx.x % 32 == 0) remote_arrive(at_peer(&smem.peer_p_free[consumer]));
      }
      after(piece);
    }
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
    for (int step = 0; step < Plan::kSteps; ++step) {
      const int thread = threadIdx.x % kWarpgroupThreads;
      remote_store(at_peer(smem.peer_p[consumer][step][thread]), weights.reg[step], full);
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

  __device__ __forceinline__ void attend(const QueryTile& tile, uint32_t round) {
    const SplitDSm90Problem& problem = params.problem;
    const QueryRows<Plan> query_rows{smem, consumer, QueryPlace<Plan>{round}};
    const auto blocks = problem.key_range_of<Plan>(tile);
    const int first_row = tile.first_row + consumer * kWarpgroupRows;
    const int own_keys = rank * Plan::kKeys;

    Query query;
    Scores scores;
    Weights weights;
    Output output;
    RowSoftmax<PvSum<Plan::acc>> softmax;
    softmax.reset();
    clear(output);

    float max[2];
    float factor[2];
    int block = blocks.end - 1;
    const auto tell_maxima = [&](int scored) {
      pin(scores);
      mask_scores<Plan>(scores, problem, tile, first_row, scored * Plan::Bc + own_keys,
                        scored >= blocks.unmasked);
      if (scored == blocks.first) query_rows.give_back();
      row_max(scores, max);
      send_maxima(max);
    };

    take_fragments(query, *this, consumer * kWarpgroupRows);
    query_rows.take(problem.q_factor);
    issue_scores(scores, query, 0);
    drain(scores);
    tell_maxima(block);
    take_maxima(max);
    softmax.move_base(max, problem.scale_log2, factor);
    softmax.exponentiate(scores, problem.scale_log2);
    pack_weights<Plan::dtype, PvSum<Plan::acc>>(scores, weights);
    send_weights(weights);

#pragma unroll 1
    for (; block > blocks.first; --block) {
      if constexpr (Plan::kOwnFirst) {
        issue_own_output(output, weights, 0);
        issue_scores(scores, query, Plan::kBehind);
        issue_peer_output(output, [&](int piece) {
          if (piece == Plan::kBehind - 1) tell_maxima(block - 1);
        });
      } else {
        issue_scores(scores, query, 0);
        issue_own_output(output, weights, Plan::kBehind);
        tell_maxima(block - 1);
        issue_peer_output(output, [](int) {});
      }
      take_maxima(max);
      const bool moved = softmax.move_base(max, problem.scale_log2, factor);
      softmax.exponentiate(scores, problem.scale_log2);
      pack_weights<Plan::dtype, PvSum<Plan::acc>>(scores, weights);
      send_weights(weights);

      drain(output);
      if (moved) scale_rows(output, factor);
    }

    issue_own_output(output, weights, 0);
    issue_peer_output(output, [](int) {});
    softmax.add_up_quads();
    share_sums(softmax.sum, round & 1);
    float inverse_sum[2];
    float lse[2];
    softmax.finish(inverse_sum, lse);
    drain(output);

    const int first_column = rank * params.owned_columns;
    if constexpr (Plan::kSplits) {
      store_split<Plan>(output, softmax, problem, tile, first_row, first_column,
                        params.owned_columns, rank == 0);
    } else {
      if (rank == 0) store_lse(lse, problem, first_row, tile);
      store_output<Plan::dtype>(output, inverse_sum, problem, first_row, first_column,
                                params.owned_columns, tile);
    }
  }

  __device__ __forceinline__ void run() {
    params.problem.for_each_tile<Plan>(
        blockIdx.x / kPairCtas, gridDim.x / kPairCtas,
        [&](const QueryTile& tile, int round) { attend(tile, round); });
  }
};

}  // namespace ffpa
