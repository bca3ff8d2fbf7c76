// A consumer of the quartet structure: a warpgroup with 64 rows of its keys' S and P and of its
// columns of O in registers.
#pragma once

#include <cstdint>
#include <type_traits>

#include "kernels/split_d_sm90_quartet_plan.cuh"
#include "kernels/split_d_sm90_query_fragments.cuh"
#include "kernels/split_d_sm90_query_rows.cuh"
#include "kernels/split_d_sm90_store_split.cuh"
#include "prim/cluster.cuh"
#include "prim/opaque.cuh"
#include "prim/wgmma.cuh"
#include "tile/warpgroup_softmax.cuh"

namespace ffpa {

template <class Plan>
struct SplitDSm90QuartetConsumer {
  using Smem = typename Plan::Smem;
  using Query = QueryFragments<Plan>;
  using Scores = typename Plan::Scores;
  using Weights = typename Plan::Weights;
  using Output = typename Plan::Output;

  const QuartetParams& params;
  Smem& smem;
  int consumer;  // of the CTA's warpgroups
  int member;    // of the quartet
  typename Plan::Position position;
  uint32_t round = 0;  // of the tiles
  uint32_t steps = 0;  // for which P has been sent

  // Of a value per row: the maxima of each step, and the sums of each tile.
  __device__ __forceinline__ uint32_t exchanges() const { return steps + round; }

  // Waits for the next piece.
  __device__ __forceinline__ const uint8_t* next_piece(const char* what) const {
    smem.pieces[consumer].full[position.slot].wait(position.parity, what);
    return smem.ring[consumer][position.slot];
  }

  __device__ __forceinline__ void give_back(int slot) {
    if (elected()) smem.pieces[consumer].free[slot].arrive();
  }

  // Closes the products on a piece as one group. The tensor cores lag behind by one piece, if `any`
  // was in hand; it is given back now.
  __device__ __forceinline__ void piece_issued(bool any) {
    wgmma_commit();
    if (any) {
      wgmma_wait<1>();
      give_back(position.slot_before(1));
    }
    position.advance();
  }

  // Until all products are done.
  template <class Sum, int kTileColumns>
  __device__ __forceinline__ void drain(Accumulator<Sum, kTileColumns>& result) {
    wgmma_wait<0>();
    pin(result);
    give_back(position.slot_before(1));
  }

  // S = Q·Kᵀ
  __device__ __forceinline__ void issue_scores(Scores& scores, const Query& query) {
    auto q = sum_along_rows(smem.q[0]);
    q.low = opaque(q.low);
#pragma unroll
    for (int i = 0; i < Plan::kKPieces; ++i) {
      const auto k = sum_along_rows(next_piece("consumer: K piece full"));
      wgmma_fence();
#pragma unroll
      for (int step = 0; step < kBoxColumns / 16; ++step)
        query.multiply(scores, q, i, step, k.at(step * 32));
      piece_issued(i > 0);
    }
  }

  // O += P·V for 16 keys
  __device__ __forceinline__ void issue_output(Output& output, const uint32_t (&weights)[4],
                                               bool any) {
    const auto v =
        sum_down_columns<kBoxColumns>(next_piece("consumer: V piece full"), Plan::kVBoxBytes);
    wgmma_fence();
    WgmmaInstruction<Plan::dtype, Plan::kColumns, true>::rs(output.reg, weights, v.at(0), 1);
    piece_issued(any);
  }

  // O += P·V over the own keys; `any`: behind a piece in hand.
  __device__ __forceinline__ void issue_own_output(Output& output, const Weights& weights,
                                                   bool any) {
#pragma unroll
    for (int k = 0; k < Plan::kOwnPieces; ++k)
      issue_output(output, weights.reg[k], any || k > 0);
  }

  // O += P·V over the others' keys, each fragment of P read just before its use to save registers.
  __device__ __forceinline__ void issue_others_output(Output& output) {
    const int thread = threadIdx.x % kWarpgroupThreads;
    const int self = opaque(member);
#pragma unroll
    for (int i = 1; i < kQuartetMembers; ++i) {
      const int other = (self + i) % kQuartetMembers;
      smem.p_full[other].wait(steps & 1 ^ 1, "consumer: another member's P");
#pragma unroll
      for (int k = 0; k < Plan::kOwnPieces; ++k) {
        const uint4 p = reinterpret_cast<const uint4&>(smem.p[other][k][thread]);
        issue_output(output, {p.x, p.y, p.z, p.w}, true);
      }
      // For the next P: by its one reader, or by the first of two.
      const bool in_this_cta = other / Plan::kConsumers == self / Plan::kConsumers;
      if (elected() && (in_this_cta || consumer == 0)) {
        smem.p_full[other].arrive_expecting(Plan::kPBytes);
      }
      __syncwarp();
      if (threadIdx.x % 32 == 0) {
        remote_arrive(
            remote_address(&smem.p_free[other % Plan::kConsumers], other / Plan::kConsumers));
      }
    }
  }

  // To all members, this one among them.
  __device__ __forceinline__ void send_rows(const float (&value)[2]) {
    Barrier& full = smem.rows_full[exchanges() & 1];
    if (consumer == 0 && elected()) full.arrive_expecting(Plan::kRowsBytes);
    if (threadIdx.x % 4 == 0) {
      const int pair = threadIdx.x % kWarpgroupThreads / 4;
      float2* const target = &smem.rows[exchanges() & 1][member][pair];
#pragma unroll
      for (int cta = 0; cta < kQuartetCtas; ++cta)
        remote_store(remote_address(target, cta), value, remote_address(&full, cta));
    }
  }

  // Combines what all members sent, in the same order everywhere.
  template <class Operation>
  __device__ __forceinline__ void take_rows(float (&value)[2], const Operation& operation) {
    const uint32_t turn = exchanges() & 1;
    smem.rows_full[turn].wait(exchanges() / 2 & 1, "consumer: values of the rows");
    const int pair = threadIdx.x % kWarpgroupThreads / 4;
#pragma unroll
    for (int other = 0; other < kQuartetMembers; ++other) {
      const float2 sent = smem.rows[turn][other][pair];
      value[0] = other == 0 ? sent.x : operation(value[0], sent.x);
      value[1] = other == 0 ? sent.y : operation(value[1], sent.y);
    }
  }

  __device__ __forceinline__ void take_maxima(float (&max)[2]) {
    take_rows(max, [](float a, float b) { return fmaxf(a, b); });
  }

  __device__ __forceinline__ void send_weights(const Weights& weights) {
    smem.p_free[consumer].wait(steps & 1 ^ 1, "consumer: P read by the others");
    ++steps;
    const int thread = threadIdx.x % kWarpgroupThreads;
#pragma unroll
    for (int cta = 0; cta < kQuartetCtas; ++cta) {
      const uint32_t full = remote_address(&smem.p_full[member], cta);
#pragma unroll
      for (int k = 0; k < Plan::kOwnPieces; ++k) {
        remote_store(remote_address(smem.p[member][k][thread], cta), weights.reg[k], full);
      }
    }
  }

  // Waits for Q, and gives it its factor, each consumer every other box.
  __device__ __forceinline__ void take_query() {
    smem.q_full[0].wait(round & 1, "consumer: Q full");
    if constexpr (std::is_same_v<typename Plan::QkSum, __half>) {
      scale_query((Plan::kQBoxes + 1 - consumer) / 2, smem.q[consumer], 2 * Plan::kQBoxBytes,
                  params.problem.q_factor);
      named_barrier_sync(Plan::NamedBarrier::kQueryScaled, Plan::kConsumers * kWarpgroupThreads);
    }
  }

  __device__ __forceinline__ void attend(const QueryTile& tile) {
    const SplitDSm90Problem& problem = params.problem;
    const QueryRows<Plan> query_rows{smem, consumer, QueryPlace<Plan>{round}};
    const auto blocks = problem.key_range_of<Plan>(tile);
    const int own_keys = member * Plan::kKeys;

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

    take_fragments(query, *this, 0);
    take_query();
    issue_scores(scores, query);
    drain(scores);
    if (block == blocks.first) query_rows.give_back();
    mask_scores<Plan>(scores, problem, tile, tile.first_row, block * Plan::Bc + own_keys,
                      problem.hides_before((block + 1) * Plan::Bc, tile));
    row_max(scores, max);
    send_rows(max);
    take_maxima(max);
    softmax.move_base(max, problem.scale_log2, factor);
    softmax.exponentiate(scores, problem.scale_log2);
    pack_weights<Plan::dtype, PvSum<Plan::acc>>(scores, weights);
    send_weights(weights);

#pragma unroll 1
    for (; block > blocks.first; --block) {
      issue_scores(scores, query);
      issue_own_output(output, weights, true);
      pin(scores);
      if (block == blocks.first + 1) query_rows.give_back();
      mask_scores<Plan>(scores, problem, tile, tile.first_row, (block - 1) * Plan::Bc + own_keys,
                        problem.hides_before(block * Plan::Bc, tile));
      row_max(scores, max);
      send_rows(max);
      issue_others_output(output);

      take_maxima(max);
      const bool moved = softmax.move_base(max, problem.scale_log2, factor);
      softmax.exponentiate(scores, problem.scale_log2);

      drain(output);
      pack_weights<Plan::dtype, PvSum<Plan::acc>>(scores, weights);
      send_weights(weights);
      if (moved) scale_rows(output, factor);
    }

    issue_own_output(output, weights, false);
    issue_others_output(output);
    softmax.add_up_quads();
    send_rows(softmax.sum);
    take_rows(softmax.sum, [](float a, float b) { return a + b; });
    float inverse_sum[2];
    float lse[2];
    softmax.finish(inverse_sum, lse);
    drain(output);

    const int first_column = member * Plan::kColumns;
    if constexpr (Plan::kSplits) {
      store_split<Plan>(output, softmax, problem, tile, tile.first_row, first_column,
                        Plan::kColumns, member == 0);
    } else {
      if (member == 0) store_lse(lse, problem, tile.first_row, tile);
      store_output<Plan::dtype>(output, inverse_sum, problem, tile.first_row, first_column,
                                Plan::kColumns, tile);
    }
  }

  __device__ __forceinline__ void run() {
    params.problem.for_each_tile<Plan>(blockIdx.x / kQuartetCtas, gridDim.x / kQuartetCtas,
                                       [&](const QueryTile& tile, int of_worker) {
                                         round = of_worker;
                                         attend(tile);
                                       });
  }
};

}  // namespace ffpa
