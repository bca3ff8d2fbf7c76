// Facts about the current device. Host code.
#pragma once

#include <cuda_runtime.h>

namespace ffpa {

inline cudaError_t num_multiprocessors(int& count) {
  int device;
  if (cudaError_t status = cudaGetDevice(&device); status != cudaSuccess) return status;
  return cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
}

}  // namespace ffpa
