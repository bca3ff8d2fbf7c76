// Values per row, combined over the warps that share the rows.
#pragma once

#include "prim/mbarrier.cuh"
#include "tile/warp_softmax.cuh"

namespace ffpa {

// kWarps warps hold different columns of the same kRowTiles * 16 rows, in mma's layout; the four
// lanes of a quad hold equal values.
template <int kRowTiles, int kWarps>
struct RowExchange {
  float* values;   // [kRowTiles * 16][kWarps] in shared memory, this row group's
  int barrier_id;  // of this row group

  __device__ __forceinline__ void sync() const {
    if constexpr (kWarps > 1) named_barrier_sync(barrier_id, 32 * kWarps);
  }

  // All warps combine in the same order and come to the same result. Between two calls there has to
  // be another sync().
  template <class Operation>
  __device__ __forceinline__ void reduce(PerRow<kRowTiles>& rows, int warp,
                                         const Operation& operation) const {
    if constexpr (kWarps > 1) {
      const int lane = threadIdx.x % 32;
      float* my_values = values + lane / 4 * kWarps;
      if (lane % 4 == 0) {
#pragma unroll
        for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
          for (int h = 0; h < 2; ++h)
            my_values[(16 * r + 8 * h) * kWarps + warp] = rows[r][h];
        }
      }
      sync();
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const float* row = my_values + (16 * r + 8 * h) * kWarps;
          float value = row[0];
#pragma unroll
          for (int w = 1; w < kWarps; ++w)
            value = operation(value, row[w]);
          rows[r][h] = value;
        }
      }
    }
  }
};

}  // namespace ffpa
