// One thread of a warp.
#pragma once

#include <cstdint>

namespace ffpa {

// True in one thread of the warp, all of which have to call it. Where a branch on threadIdx would
// do as well, the compiler does not see that a single thread comes there: it copies what a TMA
// instruction needs to uniform registers one by one and loops over the threads, 45 instructions a
// load instead of 22.
__device__ __forceinline__ bool elect_one() {
  uint32_t elected;
  asm volatile("{\n.reg .pred p;\nelect.sync _|p, 0xffffffff;\nselp.u32 %0, 1, 0, p;\n}"
               : "=r"(elected));
  return elected != 0;
}

}  // namespace ffpa
