// Waits for a barrier that nobody arrives at: what a debug build says of it.
#include <cstdio>

#include "prim/mbarrier.cuh"

__global__ void wait_for_nobody() {
  __shared__ ffpa::Barrier full;
  if (threadIdx.x == 0) full.init(1);
  __syncthreads();
  if (threadIdx.x == 7) full.wait(0, "consumer for K");
}

int main() {
  wait_for_nobody<<<2, 32>>>();
  const cudaError_t error = cudaDeviceSynchronize();
  std::printf("%s\n", cudaGetErrorName(error));
  return error == cudaSuccess ? 0 : 1;
}
