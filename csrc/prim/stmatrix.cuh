// Stores of 8 × 8 tiles of 16-bit elements from a warp's registers to shared memory.
#pragma once

#include <cstdint>

#include "prim/mbarrier.cuh"

namespace ffpa {

// Four tiles; thread t gives the address of row t % 8 of tile t / 8, and holds of every tile i, in
// element pair[i], columns 2 (t % 4) and the next of row t / 4.
__device__ __forceinline__ void stmatrix_x4(void* row, const uint32_t (&pair)[4]) {
  asm volatile(
      "stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(shared_address(row)),
      "r"(pair[0]), "r"(pair[1]), "r"(pair[2]), "r"(pair[3])
      : "memory");
}

}  // namespace ffpa
