// Keeps the compiler from computing ahead.
#pragma once

namespace ffpa {

// The same value, of which the compiler no longer knows that it is: what follows from it is then
// computed where it is used, and not once before a loop to be kept in registers (or spilled).
__device__ __forceinline__ int opaque(int value) {
  asm volatile("" : "+r"(value));
  return value;
}

}  // namespace ffpa
