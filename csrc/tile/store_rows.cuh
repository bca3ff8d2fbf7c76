// A warpgroup's finished rows of O, scaled and rounded, from registers straight to global memory:
// shared memory is then free for the next tile's Q before this tile's O is done.
#pragma once

#include <cstdint>

#include "params.h"
#include "prim/opaque.cuh"
#include "prim/wgmma.cuh"
#include "tile/warpgroup_softmax.cuh"

namespace ffpa {

// The four threads of a quad hold a pair each of four groups of eight columns; afterwards thread t
// holds all of group t, in order.
__device__ __forceinline__ void transpose_quad(uint32_t (&pair)[4]) {
  const bool odd = threadIdx.x & 1;
  const bool upper = threadIdx.x & 2;
  // First with the neighbour: the even thread keeps groups 0 and 2, the odd one 1 and 3.
#pragma unroll
  for (int i = 0; i < 4; i += 2) {
    const uint32_t got = __shfl_xor_sync(0xffffffff, odd ? pair[i] : pair[i + 1], 1);
    pair[i] = odd ? got : pair[i];
    pair[i + 1] = odd ? pair[i + 1] : got;
  }
  // Then with the other half of the quad, which has the other two pairs of the group.
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t got = __shfl_xor_sync(0xffffffff, upper ? pair[i] : pair[i + 2], 2);
    pair[i] = upper ? got : pair[i];
    pair[i + 2] = upper ? pair[i + 2] : got;
  }
}

// Where the rows of a head go; columns from `columns` on do not exist.
struct OutputRows {
  uint16_t* first;
  int64_t stride;
  int rows;
  int columns;
};

// `row`: this thread's first row, `column`: the tile's first column.
template <DType kDType, class Sum, int kColumns>
__device__ __forceinline__ void store_rows(const Accumulator<Sum, kColumns>& tile,
                                           const float (&factor)[2], const OutputRows& out, int row,
                                           int column) {
  static_assert(kColumns % 16 == 0, "stored in steps of two groups of eight columns");
  // After the transposition, groups 0 and 2 are of the first row and 1 and 3 of the second.
  const int thread = opaque(threadIdx.x) % 4;
  row += 8 * (thread % 2);
  column += 8 * (thread / 2);
  if (row >= out.rows) column = out.columns;
  uint16_t* target = out.first + row * out.stride + column;
#pragma unroll
  for (int i = 0; i < kColumns; i += 16) {
    uint32_t packed[4];
#pragma unroll
    for (int j = 0; j < 4; ++j) {
      const float2 pair = tile.get(i / 4 + j);
      packed[j] = pack<kDType>({pair.x * factor[j % 2], pair.y * factor[j % 2]});
    }
    transpose_quad(packed);
    if (column + i < out.columns) {
      *reinterpret_cast<uint4*>(target + i) = {packed[0], packed[1], packed[2], packed[3]};
    }
  }
}

}  // namespace ffpa
