// From a matrix in global memory to tiles in shared memory, one after another.
#pragma once

#include <cstdint>

#include "params.h"
#include "tile/cta_rows.cuh"
#include "tile/panels.cuh"

namespace ffpa {

// This thread's place in the next tile of a matrix, kPanel::kRows rows of it.
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
        rows_left_(num_rows - first_row - Passes::my_row()),
        columns_left_(num_columns - Passes::my_column()) {}

  // Starts this thread's copies of the next tile.
  __device__ __forceinline__ void copy(uint32_t smem) { copy_part<1>(smem, 0); }

  // The same in kParts portions, to be called for part = 0, 1, … in turn.
  template <int kParts>
  __device__ __forceinline__ void copy_part(uint32_t smem, int part) {
    int pass = 0;
    Passes::for_my_chunks([&](int panel, int row) {
      if (pass++ * kParts / Passes::kPasses != part) return;
      cp_async_16(smem + Passes::my_offset() + panel * PanelType::kBytes + row * PanelType::kPitch,
                  place_ + row * stride_ + panel * PanelType::kColumns,
                  row < rows_left_ && panel * PanelType::kColumns < columns_left_);
    });
    if (part == kParts - 1) {
      place_ += PanelType::kRows * stride_;
      rows_left_ -= PanelType::kRows;
    }
  }

 private:
  const Element* place_;
  int64_t stride_;
  int rows_left_;
  int columns_left_;
};

}  // namespace ffpa
