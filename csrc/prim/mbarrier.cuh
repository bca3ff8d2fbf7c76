// Shared-memory barriers that count arrivals and bytes (mbarrier), and named barriers of threads.
#pragma once

#include <cstdint>

#ifdef FFPA_DEBUG_BARRIERS
#include <cstdio>
#endif

namespace ffpa {

__device__ __forceinline__ uint32_t shared_address(const void* smem) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(smem));
}

// A barrier completes one phase after another; a waiter names the parity of the phase it needs.
// A fresh barrier is in phase 0, so waiting for parity 1 returns at once: producers start that way.
struct Barrier {
  uint64_t state;

  __device__ void init(uint32_t arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(this)),
                 "r"(arrivals)
                 : "memory");
  }

  __device__ void arrive() {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(this)) : "memory");
  }

  // Arrives and makes the phase wait for so many bytes of asynchronous copies as well.
  __device__ void arrive_expecting(uint32_t bytes) {
    asm volatile(
        "mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(this)),
        "r"(bytes)
        : "memory");
  }

  __device__ bool completed(uint32_t parity) const {
    uint32_t done;
    asm volatile(
        "{\n.reg .pred p;\n"
#if __CUDA_ARCH__ >= 900
        "mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;\n"  // sleeps a while if it has to
#else
        "mbarrier.test_wait.parity.shared::cta.b64 p, [%1], %2;\n"
#endif
        "selp.u32 %0, 1, 0, p;\n}"
        : "=r"(done)
        : "r"(shared_address(this)), "r"(parity)
        : "memory");
    return done != 0;
  }

  // `what` says who waits for what; only a build with FFPA_DEBUG_BARRIERS, where a wait that takes
  // longer than about a second stops the kernel, prints it.
  __device__ void wait(uint32_t parity, [[maybe_unused]] const char* what) const {
#ifdef FFPA_DEBUG_BARRIERS
    constexpr long long kLimitCycles = 2'000'000'000;
    const long long start = clock64();
    while (!completed(parity)) {
      if (clock64() - start < kLimitCycles) continue;
      printf("CTA %d thread %d hangs: %s, parity %u\n", blockIdx.x, threadIdx.x, what, parity);
      __trap();
    }
#else
    while (!completed(parity)) {
    }
#endif
  }

  // For waits as long as a tile: looks every 200 ns only, for each look takes a turn at shared
  // memory from the products.
  __device__ void wait_asleep(uint32_t parity, [[maybe_unused]] const char* what) const {
#ifdef FFPA_DEBUG_BARRIERS
    wait(parity, what);
#else
    while (!completed(parity))
      __nanosleep(200);
#endif
  }
};

// Makes initialised barriers visible to the copy engine and to the other CTAs of the cluster.
__device__ __forceinline__ void fence_barrier_init() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

// Orders this thread's ordinary shared-memory writes before what wgmma or the copy engine, the
// asynchronous proxy, does after the next barrier.
__device__ __forceinline__ void fence_async_proxy() {
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// Named barriers, 1 to 15 (0 is __syncthreads): `sync` waits until `threads` threads have come,
// `arrive` counts as coming without waiting.
__device__ __forceinline__ void named_barrier_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

__device__ __forceinline__ void named_barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(id), "r"(threads) : "memory");
}

}  // namespace ffpa
