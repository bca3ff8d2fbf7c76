// Asynchronous copies of 16 bytes from global to shared memory (cp.async).
#pragma once

#include <cstdint>

#include "prim/mbarrier.cuh"

namespace ffpa {

// Writes 16 zero bytes instead, reading nothing, where not `valid`. Goes past L1: a tile is read
// once per CTA.
__device__ __forceinline__ void cp_async_16(uint32_t smem, const void* global, bool valid) {
  asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(smem), "l"(global),
               "r"(valid ? 16 : 0)
               : "memory");
}

// Arrives at the barrier, for this thread, once all of its copies so far have landed.
__device__ __forceinline__ void cp_async_arrive(Barrier& barrier) {
  asm volatile("cp.async.mbarrier.arrive.noinc.shared.b64 [%0];" ::"r"(shared_address(&barrier))
               : "memory");
}

// Closes a group of this thread's copies; a group may be empty.
__device__ __forceinline__ void cp_async_commit() {
  asm volatile("cp.async.commit_group;" ::: "memory");
}

// Waits until at most kPending of this thread's groups, the last ones, have not landed.
template <int kPending>
__device__ __forceinline__ void cp_async_wait_group() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

// Waits for this thread's copies only.
__device__ __forceinline__ void cp_async_wait_all() {
  asm volatile("cp.async.wait_all;" ::: "memory");
}

}  // namespace ffpa
