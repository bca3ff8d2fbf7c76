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

__device__ __forceinline__ void tma_prefetch_map(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" ::"l"(&map) : "memory");
}

// Completes as bytes on `full`, the whole box even where it reaches beyond the tensor.
__device__ __forceinline__ void tma_load(const CUtensorMap& map, void* smem, Barrier& full,
                                         const BoxOrigin& origin) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
      " [%0], [%1, {%3, %4, %5, %6}], [%2];" ::"r"(shared_address(smem)),
      "l"(&map), "r"(shared_address(&full)), "r"(origin.column), "r"(origin.row), "r"(origin.head),
      "r"(origin.batch)
      : "memory");
}

// Through a panel map (make_panel_map): one box, or several side by side from box `panel` on.
__device__ __forceinline__ void tma_load_panels(const CUtensorMap& map, void* smem, Barrier& full,
                                                const BoxOrigin& origin, int panel = 0) {
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

__device__ __forceinline__ void tma_store(const CUtensorMap& map, const void* smem,
                                          const BoxOrigin& origin) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];" ::"l"(
          &map),
      "r"(shared_address(smem)), "r"(origin.column), "r"(origin.row), "r"(origin.head),
      "r"(origin.batch)
      : "memory");
}

__device__ __forceinline__ void tma_store_commit() {
  asm volatile("cp.async.bulk.commit_group;" ::: "memory");
}

// Until this thread's stores have read their shared memory (it may be written again).
__device__ __forceinline__ void tma_store_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
}

}  // namespace ffpa
