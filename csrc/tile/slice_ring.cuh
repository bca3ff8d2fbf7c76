// A ring of shared-memory slots that all warps of a CTA fill together and read one by one.
//
// Slices pass through it in the order in which its loader starts their copies. Whoever reads slice
// i starts, on the way, its share of the copies of slice i + kLead, into the slot of slice i +
// kLead - kStages. With kLead below kStages - 1 that is not the slice read last, so that warps need
// not keep in step: the fastest may be kStages - kLead slices ahead of the slowest, and one warp's
// softmax runs beside another's products.
#pragma once

#include <cstdint>

#include "prim/cp_async.cuh"
#include "prim/math.cuh"
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

// `load(address)` starts this thread's share of the next slice, and load.done() says that there is
// none left.
template <int kStages, int kLead, int kSlotBytes, class Load>
class SliceRing {
  static_assert(0 <= kLead && kLead < kStages);

 public:
  using Barriers = RingBarriers<kStages>;

  __device__ __forceinline__ SliceRing(Barriers& barriers, uint32_t slots, const Load& load)
      : barriers_(barriers), slots_(pin(slots)), load_(load) {}

  // By one thread, before any other call.
  __device__ __forceinline__ void init(int num_threads) { barriers_.init(num_threads); }

  // Starts the copies of the first kLead slices.
  __device__ __forceinline__ void prime() {
#pragma unroll 1
    for (int slice = 0; slice < kLead; ++slice)
      fill();
  }

  // The address of the next slice to read, once it has landed. Then, while the first products are
  // on their way, refill(); and when all of it is in registers, release().
  __device__ __forceinline__ uint32_t acquire() {
    if constexpr (kLead == 0) fill();
    barriers_.full[read_.slot].wait(read_.parity, "a slice of K or V");
    return slots_ + read_.slot * kSlotBytes;
  }

  __device__ __forceinline__ void refill() {
    if constexpr (kLead > 0) fill();
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

  __device__ __forceinline__ void fill() {
    if (load_.done()) return;
    barriers_.empty[write_.slot].wait(write_.parity ^ 1, "a slot of the ring");
    load_(slots_ + write_.slot * kSlotBytes);
    cp_async_arrive(barriers_.full[write_.slot]);
    write_.next();
  }

  Barriers& barriers_;
  uint32_t slots_;
  Load load_;
  Position read_;
  Position write_;
};

}  // namespace ffpa
