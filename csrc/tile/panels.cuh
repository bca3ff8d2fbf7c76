// Matrices from global memory into panels of shared memory (prim/swizzle.cuh), by all of a CTA.
#pragma once

#include <cstdint>

#include "config.cuh"
#include "prim/cp_async.cuh"
#include "prim/swizzle.cuh"

namespace ffpa {

// Which chunks of a matrix of kNumPanels panels a thread copies: eight threads to a row, so that a
// warp reads whole 128-byte lines and writes without bank conflicts, in passes over kThreads / 8
// rows of one panel or of several. Only its place in the first pass has to be computed; the steps
// from there to its other chunks are constants.
template <class PanelType, int kNumPanels, int kThreads>
struct PanelPasses {
  using Panel = PanelType;
  static constexpr int kPassRows = kThreads / Panel::kChunks;
  static constexpr int kPassPanels = kPassRows > Panel::kRows ? kPassRows / Panel::kRows : 1;
  static constexpr int kPanelPasses = ceil_div(Panel::kRows, kPassRows);
  static constexpr int kPasses = ceil_div(kNumPanels, kPassPanels) * kPanelPasses;
  static constexpr bool kUneven =
      kNumPanels % kPassPanels != 0 || kPanelPasses * kPassRows != kPassPanels * Panel::kRows;

  static __device__ __forceinline__ int my_row() {
    return threadIdx.x / Panel::kChunks % (kPassRows / kPassPanels);
  }
  static __device__ __forceinline__ int my_panel() {
    return threadIdx.x / Panel::kChunks / (kPassRows / kPassPanels);
  }
  static __device__ __forceinline__ int my_column() {
    return my_panel() * Panel::kColumns + threadIdx.x % Panel::kChunks * 8;
  }
  // In bytes into the panels.
  static __device__ __forceinline__ uint32_t my_offset() {
    return my_panel() * Panel::kBytes + Panel::offset(my_row(), threadIdx.x % Panel::kChunks);
  }

  // Calls visit(panel, row), counted from this thread's place, for each of its chunks.
  template <class Visit>
  static __device__ __forceinline__ void for_my_chunks(const Visit& visit) {
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      const int panel = pass / kPanelPasses * kPassPanels;
      const int row = pass % kPanelPasses * kPassRows;
      if (kUneven && (row + my_row() >= Panel::kRows || panel + my_panel() >= kNumPanels)) continue;
      visit(panel, row);
    }
  }
};

// Starts this thread's copies. `smem` and `matrix` are at its place, my_offset() into the panels
// and (my_row(), my_column()) into the matrix, of which num_rows rows and num_columns columns are
// left from there on; what lies behind is filled with zeros and never read.
template <class Passes, class Element>
__device__ __forceinline__ void copy_panels(uint32_t smem, const Element* matrix,
                                            int64_t row_stride, int num_rows, int num_columns) {
  using Panel = typename Passes::Panel;
  Passes::for_my_chunks([&](int panel, int row) {
    cp_async_16(smem + panel * Panel::kBytes + row * Panel::kPitch,
                matrix + row * row_stride + panel * Panel::kColumns,
                row < num_rows && panel * Panel::kColumns < num_columns);
  });
}

}  // namespace ffpa
