// Arithmetic that the compiler does not emit by itself.
#pragma once

#include <cstdint>

namespace ffpa {

constexpr float kInfinity = __builtin_huge_valf();

// Keeps a value in its register: left alone, the compiler may compute it anew at every use.
__device__ __forceinline__ uint32_t pin(uint32_t value) {
  asm volatile("" : "+r"(value));
  return value;
}

// 2^x by the special function unit: relative error 2^-22, subnormal results become 0.
__device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

}  // namespace ffpa
