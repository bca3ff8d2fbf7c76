// Two slots of shared memory that hold the even and the odd tiles of K, or of V; from step 10 on.
//
// Barriers in shared memory say when a tile has landed and when every thread is done with one, so
// that no warp has to wait for the others at a __syncthreads.
#pragma once

#include "prim/cp_async.cuh"
#include "prim/mbarrier.cuh"

namespace ffpa {

struct SlotBarriers {
  Barrier full[2];   // every thread's copies have landed
  Barrier empty[2];  // every thread is done with the slot

  __device__ __forceinline__ void init(int num_threads) {
    for (int slot = 0; slot < 2; ++slot) {
      full[slot].init(num_threads);
      empty[slot].init(num_threads);
    }
  }
};

template <class Source>
class TileSlots {
 public:
  static constexpr int kBytes = 2 * Source::kTileBytes;

  __device__ __forceinline__ TileSlots(SlotBarriers& barriers, uint32_t slots)
      : barriers_(barriers), slots_(slots) {}

  // Starts this thread's copies of a tile, once all threads are done with the one before in its
  // slot.
  __device__ __forceinline__ void fill(Source& source, int tile) {
    barriers_.empty[tile % 2].wait((tile / 2 + 1) % 2, "a slot of the ring");
    source.copy(tile, address(tile));
    cp_async_arrive(barriers_.full[tile % 2]);
  }

  // The address of a tile, once it has landed; release it when all of it is in registers.
  __device__ __forceinline__ uint32_t acquire(int tile) {
    barriers_.full[tile % 2].wait(tile / 2 % 2, "a tile of K or V");
    return address(tile);
  }
  __device__ __forceinline__ void release(int tile) { barriers_.empty[tile % 2].arrive(); }

 private:
  __device__ __forceinline__ uint32_t address(int tile) const {
    return slots_ + tile % 2 * Source::kTileBytes;
  }

  SlotBarriers& barriers_;
  uint32_t slots_;
};

}  // namespace ffpa
