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
// `full`, the whole boxes even where they reach beyond the tensor.
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
  const bool together = matrix.boxes_per_load > 1;
#pragma unroll 1
  for (int box = 0; box < boxes; box += matrix.boxes_per_load) {
    const int column = together ? 0 : (first + box) * kColumns;
    tma_load_panels(matrix.map, smem + box * box_bytes, full, {column, row, head, batch},
                    together ? first : 0);
  }
}

}  // namespace ffpa
