// Clusters of CTAs: who is where, and stores into the shared memory of another CTA.
//
// A remote store completes as bytes on a barrier beside the data, so that the receiver needs no
// fence: it waits for the bytes and reads. Arrivals keep the default scope on purpose; the cluster
// scope makes the compiler flush caches, and no ordinary data depends on it here.
#pragma once

#include <cstdint>

#include "prim/mbarrier.cuh"

namespace ffpa {

__device__ __forceinline__ uint32_t cluster_rank() {
  uint32_t rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}

// Every thread of every CTA of the cluster.
__device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}

// Where `smem` lies in the CTA of that rank.
__device__ __forceinline__ uint32_t remote_address(const void* smem, uint32_t rank) {
  uint32_t address;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(address)
               : "r"(shared_address(smem)), "r"(rank));
  return address;
}

// An array, not a float2: for two floats in braces CUDA 12 would prefer the overload below.
__device__ __forceinline__ void remote_store(uint32_t address, const float (&value)[2],
                                             uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::
          "r"(address),
      "f"(value[0]), "f"(value[1]), "r"(barrier)
      : "memory");
}

__device__ __forceinline__ void remote_store(uint32_t address, const uint32_t (&value)[4],
                                             uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32"
      " [%0], {%1, %2, %3, %4}, [%5];" ::"r"(address),
      "r"(value[0]), "r"(value[1]), "r"(value[2]), "r"(value[3]), "r"(barrier)
      : "memory");
}

__device__ __forceinline__ void remote_arrive(uint32_t barrier) {
  asm volatile("mbarrier.arrive.shared::cluster.b64 _, [%0];" ::"r"(barrier) : "memory");
}

}  // namespace ffpa
