// Adds up what the splits of the keys left of each row of O (split_kv-sm80, and split_d-sm90 where
// it splits them).
//
// A warp takes 128 columns of a row, a lane four of them, and of the splits all, or every second,
// fourth or eighth: as many warps share a row as leave each four splits or more, since a CTA's
// warps wait for memory together. The order of every sum is fixed, so that results repeat bit by
// bit.
#pragma once

#include <cuda_runtime.h>

#include "config.cuh"
#include "launch.cuh"
#include "prim/mma_sm80.cuh"
#include "tile/warp_softmax.cuh"

namespace ffpa {

constexpr int kMergeWarps = 8;
constexpr int kMergeColumns = 128;

// Over all lanes of a warp, in the same order in each.
template <class Operation>
__device__ __forceinline__ float reduce_warp(float x, const Operation& operation) {
#pragma unroll
  for (int step = 16; step > 0; step /= 2)
    x = operation(x, __shfl_xor_sync(0xffffffff, x, step));
  return x;
}

// What a split's sums weigh in the merged row; nothing, if it saw no key.
__device__ __forceinline__ float split_weight(float2 state, float base) {
  return state.y == 0.0f ? 0.0f : exp2f(state.x - base);
}

template <class Kernel>
__global__ void __launch_bounds__(32 * kMergeWarps)
    merge_splits_kernel(const __grid_constant__ ForwardParams params, int warps_per_row) {
  using Element = ffpa::Element<Kernel::dtype>;
  __shared__ float4 parts[kMergeWarps][32];

  const int warp = threadIdx.x / 32;
  const int lane = threadIdx.x % 32;
  const int64_t num_rows = int64_t{params.batch} * params.nheads_q * params.seqlen_q;
  const int64_t own_row =
      int64_t{blockIdx.x} * (kMergeWarps / warps_per_row) + warp / warps_per_row;
  const int64_t row = min(own_row, num_rows - 1);  // so that all threads meet at the barrier
  const int column = blockIdx.y * kMergeColumns + 4 * lane;
  const int splits = params.splits;
  const float2* states = reinterpret_cast<const float2*>(params.split_state) + row * splits;

  float base = -kInfinity;
  for (int split = lane; split < splits; split += 32)
    base = fmaxf(base, states[split].x);
  base = reduce_warp(base, Max());
  float sum = 0.0f;
  for (int split = lane; split < splits; split += 32)
    sum += states[split].y * split_weight(states[split], base);
  sum = reduce_warp(sum, Plus());

  float4 out = {};
  if (column < params.headdim_v) {
#pragma unroll 4
    for (int split = warp % warps_per_row; split < splits; split += warps_per_row) {
      const float weight = split_weight(states[split], base);
      if (states[split].y == 0.0f) continue;  // its O was never written
      const float4 part = *reinterpret_cast<const float4*>(
          params.split_out + (row * splits + split) * params.headdim_v + column);
      out.x = fmaf(weight, part.x, out.x);
      out.y = fmaf(weight, part.y, out.y);
      out.z = fmaf(weight, part.z, out.z);
      out.w = fmaf(weight, part.w, out.w);
    }
  }
  parts[warp][lane] = out;
  __syncthreads();
  if (warp % warps_per_row != 0 || own_row != row) return;
  for (int other = 1; other < warps_per_row; ++other) {
    const float4 part = parts[warp + other][lane];
    out = {out.x + part.x, out.y + part.y, out.z + part.z, out.w + part.w};
  }

  if (params.lse != nullptr && column == 0) params.lse[row] = log_sum_exp(base, sum);
  if (column >= params.headdim_v) return;
  const float factor = sum == 0.0f ? 0.0f : 1.0f / sum;
  const int64_t query = row % params.seqlen_q;
  const int64_t head = row / params.seqlen_q % params.nheads_q;
  const int64_t batch = row / params.seqlen_q / params.nheads_q;
  const Strides& strides = params.out_strides;
  Element* target = static_cast<Element*>(params.out) + batch * strides.batch +
                    head * strides.head + query * strides.row + column;
  *reinterpret_cast<uint2*>(target) = {pack_pair<Element>(out.x * factor, out.y * factor),
                                       pack_pair<Element>(out.z * factor, out.w * factor)};
}

template <class Kernel>
cudaError_t launch_merge(const ForwardParams& params, cudaStream_t stream) {
  constexpr int kSplitsPerWarp = 4;
  int warps_per_row = 1;
  while (warps_per_row < kMergeWarps && warps_per_row * kSplitsPerWarp < params.splits)
    warps_per_row *= 2;
  const int64_t rows = int64_t{params.batch} * params.nheads_q * params.seqlen_q;
  if (rows > INT32_MAX - kMergeWarps) return cudaErrorInvalidConfiguration;
  const int ctas = ceil_div(static_cast<int>(rows), kMergeWarps / warps_per_row);
  return launch_kernel(merge_splits_kernel<Kernel>,
                       dim3(ctas, ceil_div(params.headdim_v, kMergeColumns)), 32 * kMergeWarps, 0,
                       stream, params, warps_per_row);
}

}  // namespace ffpa
