// How tiles lie in shared memory: panels of 64 columns, 16-byte chunks within a row.
//
// A row of a panel is 128 bytes, all 32 banks, so eight rows of one column of chunks (what ldmatrix
// reads at a time) would share four banks. Swizzling stores chunk c of row r at c ^ (r % 8), which
// spreads them over all banks and costs no memory; padding each row by one chunk does too, but
// costs an eighth more. A panel must start at a multiple of 128 bytes.
#pragma once

#include <cstdint>

namespace ffpa {

template <int kNumRows, bool kSwizzle>
struct Panel {
  static constexpr int kRows = kNumRows;
  static constexpr int kColumns = 64;
  static constexpr int kChunks = 8;  // of 8 elements, in a row
  static constexpr int kPitch = kSwizzle ? 128 : 144;
  static constexpr int kBytes = kRows * kPitch;

  // Bytes from the panel's start to a chunk.
  static __device__ __forceinline__ uint32_t offset(int row, int chunk) {
    return row * kPitch + ((kSwizzle ? chunk ^ (row % 8) : chunk) << 4);
  }

  // From the address of a chunk to that of the chunk `chunks` further in its row, for chunk numbers
  // that share no bit with `chunks`: then a swizzled address moves by one XOR with a constant.
  static __device__ __forceinline__ uint32_t advance(uint32_t address, int chunks) {
    return kSwizzle ? address ^ (chunks << 4) : address + (chunks << 4);
  }
};

}  // namespace ffpa
