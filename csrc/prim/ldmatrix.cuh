// Fragments for mma from shared memory: four 8 x 8 matrices of 16-bit elements per instruction.
//
// Lane i gives the address of row i % 8 of matrix i / 8, 16 bytes, and receives of each matrix the
// elements (i / 4, 2 (i % 4)) and (i / 4, 2 (i % 4) + 1); transposed: of the transposed matrix.
#pragma once

#include <cstdint>

namespace ffpa {

__device__ __forceinline__ void ldmatrix_x4(uint32_t (&matrix)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrix[0]), "=r"(matrix[1]), "=r"(matrix[2]), "=r"(matrix[3])
               : "r"(address)
               : "memory");
}

__device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&matrix)[4], uint32_t address) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(matrix[0]), "=r"(matrix[1]), "=r"(matrix[2]), "=r"(matrix[3])
               : "r"(address)
               : "memory");
}

}  // namespace ffpa
