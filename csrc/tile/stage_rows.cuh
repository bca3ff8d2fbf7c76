// A warpgroup's finished rows of O, scaled and rounded, into shared memory for a TMA store.
#pragma once

#include <cstdint>

#include "prim/opaque.cuh"
#include "prim/stmatrix.cuh"
#include "prim/tensor_map.h"
#include "prim/wgmma.cuh"
#include "tile/warpgroup_softmax.cuh"

namespace ffpa {

// `smem`: the warpgroup's 64 rows of the first box (64 columns, 128-byte swizzle: 16-byte chunk c
// of row r lies at c ^ r % 8); the next box is `box_bytes` on.
template <DType kDType, class Sum, int kColumns>
__device__ __forceinline__ void stage_rows(const Accumulator<Sum, kColumns>& tile,
                                           const float (&factor)[2], uint8_t* smem, int box_bytes) {
  const int thread = opaque(threadIdx.x);
  const int lane = thread % 32;
  const int row = thread % kWarpgroupThreads / 32 * 16 + lane % 16;
  const int chunk_of_lane = lane / 16;
#pragma unroll
  for (int column = 0; column < kColumns; column += 16) {
    const int chunk = column % kBoxColumns / 8 + chunk_of_lane;
    uint8_t* target = smem + column / kBoxColumns * box_bytes + row * 128 + (chunk ^ row % 8) * 16;
    uint32_t packed[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const float2 pair = tile.get(column / 4 + i);
      packed[i] = pack<kDType>({pair.x * factor[i % 2], pair.y * factor[i % 2]});
    }
    stmatrix_x4(target, packed);
  }
}

}  // namespace ffpa
