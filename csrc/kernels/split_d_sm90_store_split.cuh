// What a kernel that splits the keys stores of a tile: for each split O before the division, and
// the base and sum of each row, for the merge (merge_splits.cuh); or O itself where there is one
// split.
#pragma once

#include <cstdint>

#include "kernels/split_d_sm90_common.cuh"
#include "tile/warpgroup_softmax.cuh"

namespace ffpa {

// Calls visit(column, pair) for this thread's pairs of columns of its row r.
template <int kColumns, class Visit>
__device__ __forceinline__ void for_pairs(const Accumulator<float, kColumns>& output, int r,
                                          int first_column, int end, const Visit& visit) {
  const int column = first_column + 2 * (threadIdx.x % 4);
#pragma unroll
  for (int i = 0; i < kColumns; i += 8) {
    if (column + i < end) visit(column + i, output.get(i / 4 + r));
  }
}

// A warpgroup's rows, from `first_row` on, and `columns` of O, from `first_column` on. The one of
// those with the same rows that `speaks` tells what is of whole rows.
template <class Plan, class Output>
__device__ __forceinline__ void store_split(const Output& output, const RowSoftmax<float>& softmax,
                                            const SplitDSm90Problem& problem, const QueryTile& tile,
                                            int first_row, int first_column, int columns,
                                            bool speaks) {
  const PackedOrder& packed = problem.packed;
  const int end = min(first_column + columns, problem.headdim_v);
  speaks = speaks && threadIdx.x % 4 == 0;
  float factor[2];
  float lse[2];
  softmax.finish(factor, lse);
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = first_row - tile.first_row + thread_row() + 8 * r;
    const PackedRow place = packed.place(tile, row, problem.seqlen_q);
    if (!place.exists) continue;
    const int64_t head = int64_t{tile.batch} * problem.order.nheads + place.head;
    const int64_t index = head * problem.seqlen_q + place.query;
    if (packed.splits == 1) {
      if (speaks && problem.lse != nullptr) problem.lse[index] = lse[r];
      const Strides& strides = problem.out_strides;
      uint16_t* const out = problem.out + tile.batch * strides.batch + place.head * strides.head +
                            place.query * strides.row;
      for_pairs(output, r, first_column, end, [&](int column, float2 pair) {
        *reinterpret_cast<uint32_t*>(out + column) =
            pack<Plan::dtype>({pair.x * factor[r], pair.y * factor[r]});
      });
    } else {
      const int64_t part = index * packed.splits + tile.split;
      if (speaks) {
        reinterpret_cast<float2*>(problem.split_state)[part] = {softmax.base[r], softmax.sum[r]};
      }
      if (softmax.sum[r] == 0.0f) continue;
      float* const out = problem.split_out + part * problem.headdim_v;
      for_pairs(output, r, first_column, end,
                [&](int column, float2 pair) { *reinterpret_cast<float2*>(out + column) = pair; });
    }
  }
}

}  // namespace ffpa
