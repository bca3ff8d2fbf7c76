// A ring of shared-memory slots between one producer thread and the consumer warpgroups.
#pragma once

#include <cstdint>

#include "prim/mbarrier.cuh"

namespace ffpa {

template <int kSlots>
struct Ring {
  Barrier full[kSlots];  // the slot's bytes have arrived
  Barrier free[kSlots];  // every consumer warpgroup is done with them

  __device__ __forceinline__ void init(int consumers) {
    for (int slot = 0; slot < kSlots; ++slot) {
      full[slot].init(1);
      free[slot].init(consumers);
    }
  }
};

// Where in the ring a role stands. `parity` is that of the rounds through the ring so far.
template <int kSlots>
struct RingPosition {
  int slot = 0;
  uint32_t parity = 0;

  __device__ __forceinline__ void advance() {
    if (++slot == kSlots) {
      slot = 0;
      parity ^= 1;
    }
  }

  __device__ __forceinline__ int slot_before(int steps) const {
    return slot >= steps ? slot - steps : slot - steps + kSlots;
  }
};

}  // namespace ffpa
