// Products of the ladder: sums += A B by one warp, in MMA steps of 16, B from shared memory. QKᵀ
// and PV differ only in where the operands come from: B(k, n) is what the sums' columns 16 n … 16 n
// + 15 need of step k.
#pragma once

#include <cstdint>

#include "prim/ldmatrix.cuh"
#include "prim/mma_sm80.cuh"

namespace ffpa {

// A lane's view of a tile.
template <class Panel>
struct Operand {
  uint32_t lane;  // the address of the row that it hands to ldmatrix

  __device__ __forceinline__ Operand(uint32_t tile, int row, int chunk)
      : lane(tile + Panel::offset(row, chunk)) {}

  // 16 columns, number `step`, of the rows from `row` on, a multiple of 16.
  __device__ __forceinline__ uint32_t at(int row, int step) const {
    constexpr int kSteps = Panel::kColumns / 16;
    return Panel::advance(lane, 2 * (step % kSteps)) + step / kSteps * Panel::kBytes +
           row * Panel::kPitch;
  }
};

// An A operand, kSteps * 16 columns: Q in shared memory,
template <class Panel, int kNumSteps>
struct OperandQ : Operand<Panel> {
  static constexpr int kSteps = kNumSteps;

  __device__ __forceinline__ explicit OperandQ(uint32_t tile)
      : Operand<Panel>(tile, threadIdx.x % 16, threadIdx.x % 32 / 16) {}

  template <int kRowTiles>
  __device__ __forceinline__ void load(uint32_t (&a)[kRowTiles][4], int k) const {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r)
      ldmatrix_x4(a[r], this->at(16 * r, k));
  }
};

// or Q or P in registers.
template <int kNumSteps, int kRowTiles>
struct FragmentsA {
  static constexpr int kSteps = kNumSteps;
  uint32_t step[kSteps][kRowTiles][4];

  __device__ __forceinline__ void load(uint32_t (&a)[kRowTiles][4], int k) const {
#pragma unroll
    for (int i = 0; i < 4 * kRowTiles; ++i)
      a[i / 4][i % 4] = step[k][i / 4][i % 4];
  }
};

// K as B operand of QKᵀ: its rows are columns of S.
template <class Panel>
struct OperandK : Operand<Panel> {
  __device__ __forceinline__ explicit OperandK(uint32_t tile)
      : Operand<Panel>(tile, threadIdx.x % 32 / 16 * 8 + threadIdx.x % 8, threadIdx.x / 8 % 2) {}

  __device__ __forceinline__ void load(uint32_t (&b)[4], int k, int n) const {
    ldmatrix_x4(b, this->at(16 * n, k));
  }
};

// V as B operand of PV: its rows are what is summed over, so ldmatrix transposes.
template <class Panel>
struct OperandV : Operand<Panel> {
  __device__ __forceinline__ explicit OperandV(uint32_t tile)
      : Operand<Panel>(tile, threadIdx.x % 16, threadIdx.x % 32 / 16) {}

  __device__ __forceinline__ void load(uint32_t (&b)[4], int k, int n) const {
    ldmatrix_x4_trans(b, this->at(16 * k, n));
  }
};

template <class Element, int kRowTiles, int kColumnTiles>
__device__ __forceinline__ void multiply_step(Tile16x8<float> (&sums)[kRowTiles][kColumnTiles],
                                              const uint32_t (&a)[kRowTiles][4],
                                              const uint32_t (&b)[4], int n) {
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
    mma<Element>(sums[r][2 * n], a[r], b[0], b[1]);
    mma<Element>(sums[r][2 * n + 1], a[r], b[2], b[3]);
  }
}

// Steps 2 to 4: operands of 64 columns, then their products.
template <class Element, int kRowTiles, int kColumnTiles, class OperandA, class OperandB>
__device__ __forceinline__ void multiply(Tile16x8<float> (&sums)[kRowTiles][kColumnTiles],
                                         const OperandA& operand_a, const OperandB& operand_b) {
  constexpr int kTurn = 4;
#pragma unroll
  for (int k = 0; k < OperandA::kSteps; ++k) {
    uint32_t a[kRowTiles][4];
    operand_a.load(a, k);
#pragma unroll
    for (int first = 0; first < kColumnTiles / 2; first += kTurn) {
      uint32_t b[kTurn][4];
#pragma unroll
      for (int n = 0; n < kTurn; ++n)
        operand_b.load(b[n], k, first + n);
#pragma unroll
      for (int n = 0; n < kTurn; ++n)
        multiply_step<Element>(sums, a, b[n], first + n);
    }
  }
}

// Step 5: each part of B just before its products.
template <class Element, int kRowTiles, int kColumnTiles, class OperandA, class OperandB>
__device__ __forceinline__ void multiply_interleaved(
    Tile16x8<float> (&sums)[kRowTiles][kColumnTiles], const OperandA& operand_a,
    const OperandB& operand_b) {
#pragma unroll
  for (int k = 0; k < OperandA::kSteps; ++k) {
    uint32_t a[kRowTiles][4];
    operand_a.load(a, k);
#pragma unroll
    for (int n = 0; n < kColumnTiles / 2; ++n) {
      uint32_t b[4];
      operand_b.load(b, k, n);
      multiply_step<Element>(sums, a, b, n);
    }
  }
}

// From step 6 on: the next operands are on their way while these are multiplied.
template <class Element, int kRowTiles, int kColumnTiles, class OperandA, class OperandB>
__device__ __forceinline__ void multiply_buffered(Tile16x8<float> (&sums)[kRowTiles][kColumnTiles],
                                                  const OperandA& operand_a,
                                                  const OperandB& operand_b) {
  constexpr int kColumns = kColumnTiles / 2;
  uint32_t b[2][4];
  operand_b.load(b[0], 0, 0);
#pragma unroll
  for (int k = 0; k < OperandA::kSteps; ++k) {
    uint32_t a[kRowTiles][4];
    operand_a.load(a, k);
#pragma unroll
    for (int n = 0; n < kColumns; ++n) {
      const int next = k * kColumns + n + 1;
      if (next < OperandA::kSteps * kColumns)
        operand_b.load(b[next % 2], next / kColumns, next % kColumns);
      multiply_step<Element>(sums, a, b[(next + 1) % 2], n);
    }
  }
}

}  // namespace ffpa
