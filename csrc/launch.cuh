// From a kernel type to what the registry holds of it, and from there to a launch.
//
// A kernel type offers
//   static constexpr DType dtype; Acc acc; int headdim, Br, Bc, num_threads; int smem_bytes;
//   static cudaError_t launch(const ForwardParams&, cudaStream_t);
// and, if it runs in clusters, static constexpr int ctas, the CTAs of one, and
//   static cudaError_t resident_clusters(int& count);
// kernel_info<Kernel>(id) erases the type. One instance lives in one generated .cu file.
//
// Its __global__ function is a template of the kernel type, not of the configuration: nvcc 13.0
// writes a host stub that does not compile when an argument is of class type.
#pragma once

#include <cuda_runtime.h>

#include "config.cuh"
#include "params.h"
#include "registry.h"

namespace ffpa {

template <class Kernel>
KernelInfo kernel_info(const char* id) {
  KernelInfo info{id,
                  name_of(Kernel::dtype),
                  name_of(Kernel::acc),
                  Kernel::headdim,
                  Kernel::Br,
                  Kernel::Bc,
                  Kernel::num_threads,
                  Kernel::smem_bytes,
                  1,
                  &Kernel::launch,
                  nullptr};
  if constexpr (requires { Kernel::ctas; }) info.ctas = Kernel::ctas;
  if constexpr (requires { &Kernel::resident_clusters; }) {
    info.resident_clusters = &Kernel::resident_clusters;
  }
  return info;
}

// Dynamic shared memory above 48 KiB needs the opt-in before every first launch on a device; it is
// cheap enough to repeat, which keeps launches free of per-device state.
template <class... Params>
cudaError_t launch_kernel(void (*kernel)(Params...), dim3 grid, int num_threads, int smem_bytes,
                          cudaStream_t stream, const Params&... params) {
  if (smem_bytes > 48 * 1024) {
    cudaError_t status =
        cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes);
    if (status != cudaSuccess) return status;
  }
  kernel<<<grid, num_threads, smem_bytes, stream>>>(params...);
  return cudaGetLastError();
}

}  // namespace ffpa
