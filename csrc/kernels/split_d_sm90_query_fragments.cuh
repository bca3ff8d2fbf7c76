// Columns of Q that a consumer keeps in registers for a whole tile, where O leaves room.
//
// The ring of K and V gets the shared memory that they would take, and depth is what bounds the
// pair and the quartet; besides, products with A in registers read shared memory for B only.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>
#include <type_traits>

#include "kernels/split_d_sm90_common.cuh"
#include "prim/ldmatrix.cuh"
#include "prim/mbarrier.cuh"
#include "prim/wgmma.cuh"

namespace ffpa {

// A warpgroup's A operand of 16 columns, step `step` of kColumns of its 64 rows in shared memory:
// each warp's own 16 rows.
template <int kColumns>
__device__ __forceinline__ void load_fragment(uint32_t (&fragment)[4], const uint8_t* rows,
                                              int step) {
  constexpr int kRowBytes = kColumns * 2;
  const int row = threadIdx.x % kWarpgroupThreads / 32 * 16 + threadIdx.x % 16;
  const int chunk = 2 * step + threadIdx.x % 32 / 16;
  // The unit's swizzles: 8 chunks of 16 bytes by eight rows, or 4 by eight rows in pairs.
  const int stored = chunk ^ (kRowBytes == 128 ? row % 8 : row / 2 % 4);
  ldmatrix_x4(fragment, shared_address(rows) + row * kRowBytes + stored * 16);
}

// The A operands of the first columns of Q, 16 columns each.
template <class Plan>
struct QueryFragments {
  static constexpr int kSteps = Plan::kQRegisterBoxes * kBoxColumns / 16;
  uint32_t reg[kSteps > 0 ? kSteps : 1][4];

  // Issues S += Q·Kᵀ for 16 columns, from step `step` of box `box` on; `rest` has the boxes that
  // are not kept here.
  template <class Scores>
  __device__ __forceinline__ void multiply(Scores& scores, const SmemMatrix<kBoxColumns>& rest,
                                           int box, int step, uint64_t k) const {
    using Product = WgmmaInstruction<Plan::dtype, Plan::kKeys, false>;
    const bool add = box + step > 0;
    if (box < Plan::kQRegisterBoxes) {
      Product::rs(scores.reg, reg[box * kBoxColumns / 16 + step], k, add);
    } else {
      Product::ss(scores.reg, rest.at((box - Plan::kQRegisterBoxes) * Plan::kQBoxBytes + step * 32),
                  k, add);
    }
  }
};

template <int kSteps>
__device__ __forceinline__ void scale_fragments(uint32_t (&fragments)[kSteps][4], float factor) {
  const __half2 factors = __float2half2_rn(factor);
#pragma unroll
  for (auto& fragment : fragments) {
#pragma unroll
    for (uint32_t& pair : fragment) {
      auto& values = reinterpret_cast<__half2&>(pair);
      values = __hmul2(values, factors);
    }
  }
}

// The same as clear_missing_rows() for the fragments of one step; `rows` are those that a tile has,
// from this thread's first on.
__device__ __forceinline__ void clear_missing_rows(uint32_t (&fragment)[4], int rows) {
  if (rows <= 0) fragment[0] = fragment[2] = 0;
  if (rows <= 8) fragment[1] = fragment[3] = 0;
}

// Takes them out of the ring, where they are the next pieces of `consumer`; its rows of each begin
// at `first_row`.
template <class Plan, class Consumer>
__device__ __forceinline__ void take_fragments(QueryFragments<Plan>& query, Consumer& consumer,
                                               int first_row) {
  if constexpr (Plan::kQPieces > 0) {
    constexpr int kPieceSteps = Plan::kQPieceColumns / 16;
#pragma unroll
    for (int piece = 0; piece < Plan::kQPieces; ++piece) {
      const uint8_t* const rows =
          consumer.next_piece("consumer: Q piece full") + first_row * Plan::kQPieceColumns * 2;
#pragma unroll
      for (int i = 0; i < kPieceSteps; ++i) {
        load_fragment<Plan::kQPieceColumns>(query.reg[piece * kPieceSteps + i], rows, i);
        if constexpr (Plan::kSplits) {
          clear_missing_rows(query.reg[piece * kPieceSteps + i],
                             consumer.params.problem.packed.rows() - first_row - thread_row());
        }
      }
      consumer.position.advance();
      const int taken = piece % Plan::kSlots + 1;
      if (taken < Plan::kSlots && piece + 1 < Plan::kQPieces) continue;
      // The ring is full of Q, or that was all of it. Without the fence a load may still wait for
      // shared memory when its slot is written again: one tile in some 20,000 went wrong.
      fence_async_proxy();
      named_barrier_sync(Plan::NamedBarrier::kQueryTaken + consumer.consumer, kWarpgroupThreads);
#pragma unroll
      for (int age = taken; age > 0; --age)
        consumer.give_back(consumer.position.slot_before(age));
    }

    if constexpr (std::is_same_v<typename Plan::QkSum, __half>) {
      scale_fragments(query.reg, consumer.params.problem.q_factor);
    }
  }
}

}  // namespace ffpa
