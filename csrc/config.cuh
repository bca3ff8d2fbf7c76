// The vocabulary of kernel configurations: what kernels.toml may say, as C++ values.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

namespace ffpa {

enum class DType { fp16, bf16 };

// Where sums are rounded. Softmax is F32 in every one of them.
//   f32        QKᵀ and PV accumulate in F32
//   f16        both in F16
//   qk32_pv16  QKᵀ in F32, PV in F16          qk16_pv32  the reverse
//   f16f32     both in short F16 chains, each flushed into F32
enum class Acc { f16, f32, qk32_pv16, qk16_pv32, f16f32 };

template <DType kDType>
struct ElementOf;
template <>
struct ElementOf<DType::fp16> {
  using type = __half;
};
template <>
struct ElementOf<DType::bf16> {
  using type = __nv_bfloat16;
};
template <DType kDType>
using Element = typename ElementOf<kDType>::type;

constexpr const char* name_of(DType dtype) {
  return dtype == DType::fp16 ? "fp16" : "bf16";
}

constexpr const char* name_of(Acc acc) {
  switch (acc) {
    case Acc::f16:
      return "f16";
    case Acc::f32:
      return "f32";
    case Acc::qk32_pv16:
      return "qk32_pv16";
    case Acc::qk16_pv32:
      return "qk16_pv32";
    case Acc::f16f32:
      return "f16f32";
  }
  return "?";
}

constexpr int ceil_div(int a, int b) {
  return (a + b - 1) / b;
}

}  // namespace ffpa
