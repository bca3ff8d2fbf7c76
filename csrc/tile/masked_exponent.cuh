// What a value of attn_mask makes of a score, as an exponent of 2.
#pragma once

#include "prim/math.cuh"

namespace ffpa {

__device__ __forceinline__ float masked_exponent(float exponent, bool visible) {
  return visible ? exponent : -kInfinity;
}

// Only -inf hides a key: other values, however negative, stay above what an empty row has.
template <class Value>
__device__ __forceinline__ float masked_exponent(float exponent, Value value) {
  constexpr float kLog2e = 1.44269504088896341f;
  constexpr float kLowest = -2.9e38f;  // above RowSoftmax::kNoBase
  const float addend = static_cast<float>(value);
  if (addend == -kInfinity) return -kInfinity;
  return fmaxf(fmaf(addend, kLog2e, exponent), kLowest);
}

}  // namespace ffpa
