// Copies of boxes between global and shared memory by the TMA unit; one thread issues them.
#pragma once

#include <cuda.h>

#include <cstdint>

#include "prim/mbarrier.cuh"
#include "prim/tensor_map.h"

namespace ffpa {

// Where a box starts in its tensor.
struct BoxOrigin {
  int column;
  int row;
  int head;
  int batch;
};

// One box, or several side by side from box `panel` on (make_panel_map). Completes as bytes on
// `full`, the whole box even where it reaches beyond the tensor.
__device__ __forceinline__ void tma_load_panels(const CUtensorMap& map, void* smem, Barrier& full,
                                                const BoxOrigin& origin, int panel) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4, %5, %6, %7}], [%2];" ::"r"(shared_address(smem)),
      "l"(&map), "r"(shared_address(&full)), "r"(origin.column), "r"(origin.row), "r"(panel),
      "r"(origin.head), "r"(origin.batch)
      : "memory");
}

// A piece of a matrix, `boxes` boxes of kColumns columns, from box `first` on; in shared memory
// they are `box_bytes` apart.
template <int kColumns = kBoxColumns>
__device__ __forceinline__ void tma_load_piece(const PieceMap& matrix, uint8_t* smem, int boxes,
                                               int box_bytes, Barrier& full, int first, int row,
                                               int head, int batch) {
  const int end = first + boxes;
#pragma unroll 1
  for (int box = first; box < end;) {
    uint8_t* const target = smem + (box - first) * box_bytes;
    if (matrix.boxes_per_load > 1 && box + matrix.boxes_per_load <= matrix.end) {
      tma_load_panels(matrix.several, target, full, {0, row, head, batch}, box);
      box += matrix.boxes_per_load;
    } else {
      tma_load_panels(matrix.single, target, full, {box * kColumns, row, head, batch}, 0);
      ++box;
    }
  }
}

}  // namespace ffpa
