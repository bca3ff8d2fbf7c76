// Operands of MMA steps on their way from shared memory into registers.
#pragma once

#include <cstdint>

namespace ffpa {

// Hands out the operands of step 0, 1, ... in turn, kFragments fragments each. With kSets sets of
// registers those of step i + kSets - 1 are loaded before the products of step i: one set loads
// just in time and leaves it to the compiler to hide that, two load one step ahead.
// `load(step, fragments)` loads a step. Loops over steps have to be unrolled, for registers have no
// addresses.
template <int kSets, int kSteps, int kFragments, class Load>
class FragmentStream {
 public:
  using Fragments = uint32_t[kFragments][4];

  __device__ __forceinline__ explicit FragmentStream(const Load& load) : load_(load) {
#pragma unroll
    for (int step = 0; step < kSets - 1 && step < kSteps; ++step)
      load_(step, sets_[step]);
  }

  __device__ __forceinline__ const Fragments& next(int step) {
    const int ahead = step + kSets - 1;
    if (ahead < kSteps) load_(ahead, sets_[ahead % kSets]);
    return sets_[step % kSets];
  }

 private:
  Load load_;
  Fragments sets_[kSets];
};

template <int kSets, int kSteps, int kFragments, class Load>
__device__ __forceinline__ FragmentStream<kSets, kSteps, kFragments, Load> stream_fragments(
    const Load& load) {
  return FragmentStream<kSets, kSteps, kFragments, Load>(load);
}

// The same interface to fragments that registers hold all the time.
template <int kSteps, int kFragments>
struct HeldFragments {
  uint32_t steps[kSteps][kFragments][4];

  __device__ __forceinline__ const uint32_t (&next(int step) const)[kFragments][4] {
    return steps[step];
  }
};

}  // namespace ffpa
