// Facts about the current device. Host code.
#pragma once

#include <cuda_runtime.h>

namespace ffpa {

inline cudaError_t num_multiprocessors(int& count) {
  int device;
  if (cudaError_t status = cudaGetDevice(&device); status != cudaSuccess) return status;
  return cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
}

// How many clusters of a kernel run at once. 0: the device cannot schedule one (its shared memory,
// or the multiprocessors that a partition of it has left together).
template <class Kernel>
cudaError_t num_resident_clusters(int& count, Kernel* kernel, int ctas, int num_threads,
                                  int smem_bytes) {
  cudaError_t status =
      cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, smem_bytes);
  if (status != cudaSuccess) return status;
  cudaLaunchAttribute cluster;
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = ctas;
  cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(ctas);
  config.blockDim = dim3(num_threads);
  config.dynamicSmemBytes = smem_bytes;
  config.attrs = &cluster;
  config.numAttrs = 1;
  return cudaOccupancyMaxActiveClusters(&count, kernel, &config);
}

}  // namespace ffpa
