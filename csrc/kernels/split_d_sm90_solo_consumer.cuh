// A consumer of the solo structure: a warpgroup with its 64 rows of S, P and O in registers.
#pragma once

#include <cstdint>

#include "kernels/split_d_sm90_query_rows.cuh"
#include "kernels/split_d_sm90_solo_plan.cuh"
#include "kernels/split_d_sm90_store_split.cuh"
#include "prim/wgmma.cuh"
#include "tile/warpgroup_softmax.cuh"

namespace ffpa {

template <class Plan>
struct SplitDSm90SoloConsumer {
  using Scores = typename Plan::Scores;
  using Weights = typename Plan::Weights;
  using Output = typename Plan::Output;
  using NamedBarrier = typename Plan::NamedBarrier;

  const SoloParams& params;
  typename Plan::Smem& smem;
  int consumer;  // of the CTA's warpgroups
  typename Plan::Position position;

  // Waits for the next block and returns its slot.
  __device__ __forceinline__ int next_block(const char* what) {
    const int slot = position.slot;
    smem.blocks.full[slot].wait(position.parity, what);
    position.advance();
    return slot;
  }

  __device__ __forceinline__ void give_back(int slot) {
    if (elected()) smem.blocks.free[slot].arrive();
  }

  __device__ __forceinline__ void wait_turn() {
    if constexpr (Plan::kPingPong) {
      named_barrier_sync(NamedBarrier::kTurn + consumer, 2 * kWarpgroupThreads);
    }
  }
  __device__ __forceinline__ void pass_turn() {
    if constexpr (Plan::kPingPong) {
      named_barrier_arrive(NamedBarrier::kTurn + (consumer + 1) % Plan::kConsumers,
                           2 * kWarpgroupThreads);
    }
  }

  // Issues S = Q·Kᵀ for the block at `slot`, as one group.
  __device__ __forceinline__ void issue_scores(Scores& scores, const QueryRows<Plan>& query_rows,
                                               int slot) {
    const auto q = sum_along_rows(query_rows.begin());
    const auto k = sum_along_rows(smem.ring[slot]);
    wgmma_fence();
#pragma unroll
    for (int d = 0; d < Plan::headdim; d += 16) {
      const int box = d / kBoxColumns;
      const int in_box = d % kBoxColumns * 2;
      WgmmaInstruction<Plan::dtype, Plan::Bc, false>::ss(
          scores.reg, q.at(box * Plan::kQBoxBytes + in_box), k.at(box * Plan::kKvBoxBytes + in_box),
          d > 0);
    }
    wgmma_commit();
  }

  // Issues O += P·V for the block at `slot`, as one group.
  __device__ __forceinline__ void issue_output(Output& output, const Weights& weights, int slot) {
    const auto v = sum_down_columns<kBoxColumns>(smem.ring[slot], Plan::kKvBoxBytes);
    wgmma_fence();
#pragma unroll
    for (int k = 0; k < Plan::Bc / 16; ++k) {
      const int rows = k * 16 * 128;
      WgmmaInstruction<Plan::dtype, Plan::kFirstColumns, true>::rs(output.reg, weights.reg[k],
                                                                   v.at(rows), 1);
      if constexpr (Plan::kLastColumns > 0) {
        WgmmaInstruction<Plan::dtype, Plan::kLastColumns, true>::rs(
            output.reg + output.kRegisters * Plan::kFirstColumns / Plan::headdim, weights.reg[k],
            v.at(Plan::kFirstColumns / kBoxColumns * Plan::kKvBoxBytes + rows), 1);
      }
    }
    wgmma_commit();
  }

  __device__ __forceinline__ void attend(const QueryTile& tile, uint32_t round) {
    const SplitDSm90Problem& problem = params.problem;
    const QueryRows<Plan> query_rows{smem, consumer, QueryPlace<Plan>{round}};
    const auto blocks = problem.key_range_of<Plan>(tile);
    const int first_row = tile.first_row + consumer * kWarpgroupRows;

    Scores scores;
    Weights weights;
    Output output;
    RowSoftmax<PvSum<Plan::acc>> softmax;
    softmax.reset();
    clear(output);

    float max[2];
    float factor[2];
    int block = blocks.end - 1;

    query_rows.take(problem.q_factor);
    const int first_slot = next_block("consumer: first K full");
    issue_scores(scores, query_rows, first_slot);
    wgmma_wait<0>();
    pin(scores);
    give_back(first_slot);
    if (block == blocks.first) query_rows.give_back();
    mask_scores<Plan>(scores, problem, tile, first_row, block * Plan::Bc, block >= blocks.unmasked);
    thread_max(scores, max);
    softmax.move_base(max, problem.scale_log2, factor);
    softmax.exponentiate(scores, problem.scale_log2);
    pack_weights<Plan::dtype, PvSum<Plan::acc>>(scores, weights);

#pragma unroll 1
    for (; block > blocks.first; --block) {
      const int k_slot = next_block("consumer: K full");
      wait_turn();
      issue_scores(scores, query_rows, k_slot);
      const int v_slot = next_block("consumer: V full");
      issue_output(output, weights, v_slot);
      pass_turn();

      wgmma_wait<1>();
      pin(scores);
      give_back(k_slot);
      if (block == blocks.first + 1) query_rows.give_back();
      mask_scores<Plan>(scores, problem, tile, first_row, (block - 1) * Plan::Bc,
                        block - 1 >= blocks.unmasked);
      thread_max(scores, max);
      const bool moved = softmax.move_base(max, problem.scale_log2, factor);
      softmax.exponentiate(scores, problem.scale_log2);

      wgmma_wait<0>();
      pin(output);
      give_back(v_slot);
      pack_weights<Plan::dtype, PvSum<Plan::acc>>(scores, weights);
      if (moved) scale_rows(output, factor);
    }

    const int last_slot = next_block("consumer: last V full");
    issue_output(output, weights, last_slot);
    softmax.add_up_quads();
    float inverse_sum[2];
    float lse[2];
    softmax.finish(inverse_sum, lse);
    wgmma_wait<0>();
    pin(output);
    give_back(last_slot);

    if constexpr (Plan::kSplits) {
      store_split<Plan>(output, softmax, problem, tile, first_row, 0, Plan::headdim, true);
    } else {
      store_lse(lse, problem, first_row, tile);
      store_output<Plan::dtype>(output, inverse_sum, problem, first_row, 0, Plan::headdim, tile);
    }
  }

  __device__ __forceinline__ void run() {
    if (consumer == Plan::kConsumers - 1) pass_turn();  // the first turn is consumer 0's
    params.problem.for_each_tile<Plan>(
        blockIdx.x, gridDim.x, [&](const QueryTile& tile, int round) { attend(tile, round); });
    if (consumer == 0) wait_turn();  // the last that was passed on
  }
};

}  // namespace ffpa
