// From a matrix in global memory to tiles in shared memory, one after another.
#pragma once

#include <cstdint>

#include "params.h"
#include "tile/cta_rows.cuh"
#include "tile/panels.cuh"

namespace ffpa {

// The tiles of a matrix, kPanel::kRows rows each, as one thread sees them.
template <class PanelType, int kHeaddim, int kThreads, class Element>
class TileSource {
  using Passes = PanelPasses<PanelType, kHeaddim / PanelType::kColumns, kThreads>;

 public:
  static constexpr int kTileBytes = kHeaddim / PanelType::kColumns * PanelType::kBytes;

  __device__ __forceinline__ TileSource(const void* matrix, const Strides& strides, int64_t batch,
                                        int64_t head, int first_row, int num_rows, int num_columns)
      : place_(static_cast<const Element*>(matrix) + Passes::my_column() +
               CtaRows::offset(strides, batch, head, first_row + Passes::my_row())),
        stride_(strides.row),
        num_rows_(num_rows - first_row - Passes::my_row()),
        num_columns_(num_columns - Passes::my_column()) {}

  // Starts this thread's copies of a tile.
  __device__ __forceinline__ void copy(int tile, uint32_t smem) const {
    copy_part<1>(tile, smem, 0);
  }

  // One of kParts portions of them.
  template <int kParts>
  __device__ __forceinline__ void copy_part(int tile, uint32_t smem, int part) const {
    const int first_row = tile * PanelType::kRows;
    const Element* place = place_ + first_row * stride_;
    int pass = 0;
    Passes::for_my_chunks([&](int panel, int row) {
      if (pass++ * kParts / Passes::kPasses != part) return;
      cp_async_16(smem + Passes::my_offset() + panel * PanelType::kBytes + row * PanelType::kPitch,
                  place + row * stride_ + panel * PanelType::kColumns,
                  first_row + row < num_rows_ && panel * PanelType::kColumns < num_columns_);
    });
  }

 private:
  const Element* place_;  // its chunk of the first tile
  int64_t stride_;
  int num_rows_;  // from there on
  int num_columns_;
};

}  // namespace ffpa
