// A ring of shared-memory slots that all warps of a CTA fill together and read one by one.
//
// Slices pass through it in one fixed order. Whoever reads slice i starts, on the way, its share of
// the copies of slice i + kLead, into the slot of slice i + kLead - kStages. With kLead below
// kStages - 1 that is not the slice read last, so that warps need not keep in step: the fastest may
// be kStages - kLead slices ahead of the slowest, and one warp's softmax runs beside another's
// products.
#pragma once

#include <cstdint>

#include "prim/cp_async.cuh"
#include "prim/mbarrier.cuh"

namespace ffpa {

template <int kStages>
struct RingBarriers {
  Barrier full[kStages];   // every thread's copies have landed
  Barrier empty[kStages];  // every thread is done with the slot

  __device__ __forceinline__ void init(int num_threads) {
    for (int slot = 0; slot < kStages; ++slot) {
      full[slot].init(num_threads);
      empty[slot].init(num_threads);
    }
  }
};

template <int kStages, int kLead, int kSlotBytes>
class SliceRing {
  static_assert(0 <= kLead && kLead < kStages);

 public:
  __device__ __forceinline__ SliceRing(RingBarriers<kStages>& barriers, uint32_t slots)
      : barriers_(barriers), slots_(slots) {}

  // Starts the copies of the first kLead slices. `load(address)` starts this thread's share of the
  // next slice, and load.done() says that there is none left.
  template <class Load>
  __device__ __forceinline__ void prime(Load& load) {
#pragma unroll 1
    for (int slice = 0; slice < kLead; ++slice)
      fill(load);
  }

  // The address of the next slice to read, once it has landed. Then, while the first products are
  // on their way, refill(); and when all of it is in registers, release().
  template <class Load>
  __device__ __forceinline__ uint32_t acquire(Load& load) {
    if constexpr (kLead == 0) fill(load);
    barriers_.full[read_.slot].wait(read_.parity, "a slice of K or V");
    return slots_ + read_.slot * kSlotBytes;
  }

  template <class Load>
  __device__ __forceinline__ void refill(Load& load) {
    if constexpr (kLead > 0) fill(load);
  }

  // This thread has read what acquire() gave. One arrival per warp would do, but is no faster, and
  // racecheck could not follow it.
  __device__ __forceinline__ void release() {
    barriers_.empty[read_.slot].arrive();
    read_.next();
  }

 private:
  struct Position {
    int slot = 0;
    uint32_t parity = 0;

    __device__ __forceinline__ void next() {
      if (++slot == kStages) {
        slot = 0;
        parity ^= 1;
      }
    }
  };

  template <class Load>
  __device__ __forceinline__ void fill(Load& load) {
    if (load.done()) return;
    barriers_.empty[write_.slot].wait(write_.parity ^ 1, "a slot of the ring");
    load(slots_ + write_.slot * kSlotBytes);
    cp_async_arrive(barriers_.full[write_.slot]);
    write_.next();
  }

  RingBarriers<kStages>& barriers_;
  uint32_t slots_;
  Position read_;
  Position write_;
};

}  // namespace ffpa
