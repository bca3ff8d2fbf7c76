// From a matrix in global memory to tiles in shared memory, one after another.
#pragma once

#include <cstdint>

#include "params.h"
#include "tile/panels.cuh"

namespace ffpa {

__device__ __forceinline__ int64_t offset_of(const Strides& strides, int batch, int head, int row) {
  return batch * strides.batch + head * strides.head + row * strides.row;
}

// The rows of one head of Q, K or V, from first_row on. Tiles are kPanel::kRows of them.
template <class PanelType, int kHeaddim, int kThreads, class Element>
class TileSource {
  using Passes = PanelPasses<PanelType, kHeaddim / PanelType::kColumns, kThreads>;

 public:
  static constexpr int kTileBytes = kHeaddim / PanelType::kColumns * PanelType::kBytes;

  __device__ __forceinline__ TileSource(const void* matrix, const Strides& strides, int batch,
                                        int head, int first_row, int num_rows, int num_columns)
      : place_(static_cast<const Element*>(matrix) + Passes::my_column() +
               offset_of(strides, batch, head, first_row + Passes::my_row())),
        stride_(strides.row),
        num_rows_(num_rows - first_row),
        num_columns_(num_columns) {}

  // Starts this thread's copies of a tile; tiles are asked for in their order. Past the last one
  // they fill zeros and read nothing.
  __device__ __forceinline__ void copy(int tile, uint32_t smem) {
    copy_panels<Passes>(smem + Passes::my_offset(), place_, stride_,
                        num_rows_ - tile * PanelType::kRows - Passes::my_row(),
                        num_columns_ - Passes::my_column());
    place_ += PanelType::kRows * stride_;
  }

 private:
  const Element* place_;  // its chunk of the next tile
  int64_t stride_;
  int num_rows_;
  int num_columns_;
};

}  // namespace ffpa
