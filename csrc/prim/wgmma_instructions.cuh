// The wgmma instructions: one struct per shape, one function per kind of operand.
//
//   D(64 × N) = A(64 × 16) · B(16 × N) + (accumulate ? D : 0)
//
// A comes from registers (rs) or shared memory (ss), B from shared memory; D is F32 (float) or F16
// (uint32_t: two to a register). An asm statement has to spell out every register of D, which
// neither templates nor loops can do: hence the macros, which do not leave this file.
#pragma once

#include <cstdint>

#include "config.cuh"

namespace ffpa {

// kTransposeB: B lies in shared memory as rows of N elements rather than as columns of 16.
template <DType kDType, int kN, bool kTransposeB>
struct WgmmaInstruction;

#define FFPA_NAMES_8 "%0,%1,%2,%3,%4,%5,%6,%7"
#define FFPA_NAMES_16 FFPA_NAMES_8 ",%8,%9,%10,%11,%12,%13,%14,%15"
#define FFPA_NAMES_20 FFPA_NAMES_16 ",%16,%17,%18,%19"
#define FFPA_NAMES_24 FFPA_NAMES_20 ",%20,%21,%22,%23"
#define FFPA_NAMES_28 FFPA_NAMES_24 ",%24,%25,%26,%27"
#define FFPA_NAMES_32 FFPA_NAMES_28 ",%28,%29,%30,%31"
#define FFPA_NAMES_40 FFPA_NAMES_32 ",%32,%33,%34,%35,%36,%37,%38,%39"
#define FFPA_NAMES_44 FFPA_NAMES_40 ",%40,%41,%42,%43"
#define FFPA_NAMES_48 FFPA_NAMES_44 ",%44,%45,%46,%47"
#define FFPA_NAMES_56 FFPA_NAMES_48 ",%48,%49,%50,%51,%52,%53,%54,%55"
#define FFPA_NAMES_64 FFPA_NAMES_56 ",%56,%57,%58,%59,%60,%61,%62,%63"
#define FFPA_NAMES_80 \
  FFPA_NAMES_64       \
  ",%64,%65,%66,%67,%68,%69,%70,%71,%72,%73,%74,%75,%76,%77,%78,%79"
#define FFPA_NAMES_88 FFPA_NAMES_80 ",%80,%81,%82,%83,%84,%85,%86,%87"
#define FFPA_NAMES_96 FFPA_NAMES_88 ",%88,%89,%90,%91,%92,%93,%94,%95"
#define FFPA_NAMES_112 \
  FFPA_NAMES_96        \
  ",%96,%97,%98,%99,%100,%101,%102,%103,%104,%105,%106,%107,%108,%109,%110,%111"
#define FFPA_NAMES_128 \
  FFPA_NAMES_112       \
  ",%112,%113,%114,%115,%116,%117,%118,%119,%120,%121,%122,%123,%124,%125,%126,%127"

#define FFPA_D4(type, i) type(d[i]), type(d[i + 1]), type(d[i + 2]), type(d[i + 3])
#define FFPA_D_8(type) FFPA_D4(type, 0), FFPA_D4(type, 4)
#define FFPA_D_16(type) FFPA_D_8(type), FFPA_D4(type, 8), FFPA_D4(type, 12)
#define FFPA_D_20(type) FFPA_D_16(type), FFPA_D4(type, 16)
#define FFPA_D_24(type) FFPA_D_20(type), FFPA_D4(type, 20)
#define FFPA_D_28(type) FFPA_D_24(type), FFPA_D4(type, 24)
#define FFPA_D_32(type) FFPA_D_28(type), FFPA_D4(type, 28)
#define FFPA_D_40(type) FFPA_D_32(type), FFPA_D4(type, 32), FFPA_D4(type, 36)
#define FFPA_D_44(type) FFPA_D_40(type), FFPA_D4(type, 40)
#define FFPA_D_48(type) FFPA_D_44(type), FFPA_D4(type, 44)
#define FFPA_D_56(type) FFPA_D_48(type), FFPA_D4(type, 48), FFPA_D4(type, 52)
#define FFPA_D_64(type) FFPA_D_56(type), FFPA_D4(type, 56), FFPA_D4(type, 60)
#define FFPA_D_80(type) \
  FFPA_D_64(type), FFPA_D4(type, 64), FFPA_D4(type, 68), FFPA_D4(type, 72), FFPA_D4(type, 76)
#define FFPA_D_88(type) FFPA_D_80(type), FFPA_D4(type, 80), FFPA_D4(type, 84)
#define FFPA_D_96(type) FFPA_D_88(type), FFPA_D4(type, 88), FFPA_D4(type, 92)
#define FFPA_D_112(type) \
  FFPA_D_96(type), FFPA_D4(type, 96), FFPA_D4(type, 100), FFPA_D4(type, 104), FFPA_D4(type, 108)
#define FFPA_D_128(type) \
  FFPA_D_112(type), FFPA_D4(type, 112), FFPA_D4(type, 116), FFPA_D4(type, 120), FFPA_D4(type, 124)

#define FFPA_ACCUMULATE(index) "{.reg .pred p; setp.ne.b32 p, %" #index ", 0;\n"
#define FFPA_OPCODE(N, sum, input) \
  "wgmma.mma_async.sync.aligned.m64n" #N "k16." sum "." input "." input

// The numbers i0.. are those of the operands after D's registers.
#define FFPA_SS(N, sum, input, names, outputs, i0, i1, i2, i3)                                \
  asm volatile(FFPA_ACCUMULATE(i2) FFPA_OPCODE(N, sum, input) " {" names "}, %" #i0 ", %" #i1 \
                                                              ", p, 1, 1, 0, %" #i3 ";}\n"    \
               : outputs                                                                      \
               : "l"(a), "l"(b), "r"(accumulate), "n"(int{kTransposeB}))

#define FFPA_RS(N, sum, input, names, outputs, i0, i1, i2, i3, i4, i5, i6)                    \
  asm volatile(FFPA_ACCUMULATE(i5) FFPA_OPCODE(N, sum, input) " {" names "}, {%" #i0 ",%" #i1 \
                                                              ",%" #i2 ",%" #i3 "}, %" #i4    \
                                                              ", p, 1, 1, %" #i6 ";}\n"       \
               : outputs                                                                      \
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "r"(accumulate),         \
                 "n"(int{kTransposeB}))

// F, H: the registers of an F32 and of an F16 D; f1.. and h1.. count on from them.
#define FFPA_WGMMA(N, F, f1, f2, f3, f4, f5, f6, H, h1, h2, h3, h4, h5, h6)                       \
  template <DType kDType, bool kTransposeB>                                                       \
  struct WgmmaInstruction<kDType, N, kTransposeB> {                                               \
    static __device__ __forceinline__ void ss(float* d, uint64_t a, uint64_t b, int accumulate) { \
      if constexpr (kDType == DType::bf16) {                                                      \
        FFPA_SS(N, "f32", "bf16", FFPA_NAMES_##F, FFPA_D_##F("+f"), F, f1, f2, f3);               \
      } else {                                                                                    \
        FFPA_SS(N, "f32", "f16", FFPA_NAMES_##F, FFPA_D_##F("+f"), F, f1, f2, f3);                \
      }                                                                                           \
    }                                                                                             \
    static __device__ __forceinline__ void rs(float* d, const uint32_t* a, uint64_t b,            \
                                              int accumulate) {                                   \
      if constexpr (kDType == DType::bf16) {                                                      \
        FFPA_RS(N, "f32", "bf16", FFPA_NAMES_##F, FFPA_D_##F("+f"), F, f1, f2, f3, f4, f5, f6);   \
      } else {                                                                                    \
        FFPA_RS(N, "f32", "f16", FFPA_NAMES_##F, FFPA_D_##F("+f"), F, f1, f2, f3, f4, f5, f6);    \
      }                                                                                           \
    }                                                                                             \
    static __device__ __forceinline__ void ss(uint32_t* d, uint64_t a, uint64_t b,                \
                                              int accumulate) {                                   \
      FFPA_SS(N, "f16", "f16", FFPA_NAMES_##H, FFPA_D_##H("+r"), H, h1, h2, h3);                  \
    }                                                                                             \
    static __device__ __forceinline__ void rs(uint32_t* d, const uint32_t* a, uint64_t b,         \
                                              int accumulate) {                                   \
      FFPA_RS(N, "f16", "f16", FFPA_NAMES_##H, FFPA_D_##H("+r"), H, h1, h2, h3, h4, h5, h6);      \
    }                                                                                             \
  };

FFPA_WGMMA(32, 16, 17, 18, 19, 20, 21, 22, 8, 9, 10, 11, 12, 13, 14)
FFPA_WGMMA(64, 32, 33, 34, 35, 36, 37, 38, 16, 17, 18, 19, 20, 21, 22)
FFPA_WGMMA(80, 40, 41, 42, 43, 44, 45, 46, 20, 21, 22, 23, 24, 25, 26)
FFPA_WGMMA(96, 48, 49, 50, 51, 52, 53, 54, 24, 25, 26, 27, 28, 29, 30)
FFPA_WGMMA(112, 56, 57, 58, 59, 60, 61, 62, 28, 29, 30, 31, 32, 33, 34)
FFPA_WGMMA(128, 64, 65, 66, 67, 68, 69, 70, 32, 33, 34, 35, 36, 37, 38)
FFPA_WGMMA(160, 80, 81, 82, 83, 84, 85, 86, 40, 41, 42, 43, 44, 45, 46)
FFPA_WGMMA(176, 88, 89, 90, 91, 92, 93, 94, 44, 45, 46, 47, 48, 49, 50)
FFPA_WGMMA(192, 96, 97, 98, 99, 100, 101, 102, 48, 49, 50, 51, 52, 53, 54)
FFPA_WGMMA(224, 112, 113, 114, 115, 116, 117, 118, 56, 57, 58, 59, 60, 61, 62)
FFPA_WGMMA(256, 128, 129, 130, 131, 132, 133, 134, 64, 65, 66, 67, 68, 69, 70)

#undef FFPA_WGMMA
#undef FFPA_RS
#undef FFPA_SS
#undef FFPA_OPCODE
#undef FFPA_ACCUMULATE
#undef FFPA_D_8
#undef FFPA_NAMES_8
#undef FFPA_D_16
#undef FFPA_NAMES_16
#undef FFPA_D_20
#undef FFPA_NAMES_20
#undef FFPA_D_24
#undef FFPA_NAMES_24
#undef FFPA_D_28
#undef FFPA_NAMES_28
#undef FFPA_D_32
#undef FFPA_NAMES_32
#undef FFPA_D_40
#undef FFPA_NAMES_40
#undef FFPA_D_44
#undef FFPA_NAMES_44
#undef FFPA_D_48
#undef FFPA_NAMES_48
#undef FFPA_D_56
#undef FFPA_NAMES_56
#undef FFPA_D_64
#undef FFPA_NAMES_64
#undef FFPA_D_80
#undef FFPA_NAMES_80
#undef FFPA_D_88
#undef FFPA_NAMES_88
#undef FFPA_D_96
#undef FFPA_NAMES_96
#undef FFPA_D_112
#undef FFPA_NAMES_112
#undef FFPA_D_128
#undef FFPA_NAMES_128
#undef FFPA_D4

}  // namespace ffpa
