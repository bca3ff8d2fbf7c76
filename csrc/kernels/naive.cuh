// naive: FlashAttention's algorithm on plain CUDA cores, the whole of it on this page.
//
// The GPU's own oracle: F32 arithmetic throughout, nothing rounded but inputs and output, any D to
// 1024. One warp owns one query row and keeps Q and O of it in registers, spread over its lanes in
// chunks of eight columns; it walks the keys Bc at a time:
//
//   s = Q Kᵀ · scale                     one dot product per key, summed over the lanes
//   m' = max(m, s)                       the running maximum
//   p = 2^(s - m')
//   l = l · 2^(m - m') + Σ p             the running sum of weights
//   O = O · 2^(m - m') + p V             at the end: O / l
//
// The warps of a CTA read the same keys at about the same time, so K and V come from L1.
#pragma once

#include <cuda_runtime.h>
#include <math_constants.h>

#include "launch.cuh"

namespace ffpa {

struct NaiveConfig {
  DType dtype;
  Acc acc;
  int headdim;
  int Br;  // query rows, and warps, of a CTA
  int Bc;
};

template <class Element>
struct alignas(16) EightElements {
  Element element[8];
};

__device__ __forceinline__ float widen(__half x) {
  return __half2float(x);
}

// The compiler takes an instruction of a quarter of the rate for what is a shift.
__device__ __forceinline__ float widen(__nv_bfloat16 x) {
  return __uint_as_float(static_cast<unsigned>(__bfloat16_as_ushort(x)) << 16);
}

template <class Kernel>
__global__ void __launch_bounds__(Kernel::num_threads)
    naive_kernel(const __grid_constant__ ForwardParams params) {
  constexpr NaiveConfig kConfig = Kernel::config;
  using T = Element<kConfig.dtype>;
  using Chunk = EightElements<T>;
  constexpr int kChunks = ceil_div(kConfig.headdim, 8 * 32);  // per lane

  const int row_tiles = ceil_div(params.seqlen_q, kConfig.Br);
  const int row = blockIdx.x % row_tiles * kConfig.Br + threadIdx.x / 32;
  const int64_t head_index = blockIdx.x / row_tiles;
  const int64_t head = head_index % params.nheads_q;
  const int64_t batch = head_index / params.nheads_q;
  const int64_t kv_head = head / (params.nheads_q / params.nheads_kv);
  if (row >= params.seqlen_q) return;

  const int lane = threadIdx.x % 32;
  const auto row_of = [&](const void* base, const Strides& strides, int64_t head, int64_t row) {
    return static_cast<const T*>(base) + batch * strides.batch + head * strides.head +
           row * strides.row;
  };
  // This lane's chunks are number lane, lane + 32, ...; those past D are zero and never touched.
  const auto load = [&](const T* of_row, int i, int headdim) {
    const int column = 8 * (lane + 32 * i);
    return column < headdim ? *reinterpret_cast<const Chunk*>(of_row + column) : Chunk{};
  };

  float q[kChunks][8];
  float out[kChunks][8] = {};
  float max = -CUDART_INF_F;
  float sum = 0.0f;
  const T* q_row = row_of(params.q, params.q_strides, head, row);
  for (int i = 0; i < kChunks; ++i) {
    const Chunk chunk = load(q_row, i, params.headdim);
    for (int e = 0; e < 8; ++e) {
      q[i][e] = widen(chunk.element[e]) * params.scale_log2;
    }
  }

  const int num_keys = min(params.seqlen_k, row + params.diagonal + 1);
  for (int first_key = 0; first_key < num_keys; first_key += kConfig.Bc) {
    float weight[kConfig.Bc];  // scores, then P
    float tile_max = max;
    for (int j = 0; j < kConfig.Bc; ++j) {
      const int key = min(first_key + j, num_keys - 1);
      const T* k_row = row_of(params.k, params.k_strides, kv_head, key);
      float score = 0.0f;
      for (int i = 0; i < kChunks; ++i) {
        const Chunk chunk = load(k_row, i, params.headdim);
        for (int e = 0; e < 8; ++e) {
          score = fmaf(q[i][e], widen(chunk.element[e]), score);
        }
      }
      for (int step = 16; step > 0; step /= 2)
        score += __shfl_xor_sync(0xffffffff, score, step);
      weight[j] = first_key + j < num_keys ? score : -CUDART_INF_F;
      tile_max = fmaxf(tile_max, weight[j]);
    }

    const float factor = exp2f(max - tile_max);
    max = tile_max;
    sum *= factor;
    for (int i = 0; i < kChunks; ++i) {
      for (int e = 0; e < 8; ++e)
        out[i][e] *= factor;
    }
    for (int j = 0; j < kConfig.Bc; ++j) {
      const int key = min(first_key + j, num_keys - 1);
      const T* v_row = row_of(params.v, params.v_strides, kv_head, key);
      weight[j] = exp2f(weight[j] - max);
      sum += weight[j];
      for (int i = 0; i < kChunks; ++i) {
        const Chunk chunk = load(v_row, i, params.headdim_v);
        for (int e = 0; e < 8; ++e) {
          out[i][e] = fmaf(weight[j], widen(chunk.element[e]), out[i][e]);
        }
      }
    }
  }

  const float inverse_sum = num_keys > 0 ? 1.0f / sum : 0.0f;
  T* out_row = const_cast<T*>(row_of(params.out, params.out_strides, head, row));
  for (int i = 0; i < kChunks; ++i) {
    const int column = 8 * (lane + 32 * i);
    if (column >= params.headdim_v) break;
    Chunk chunk;
    for (int e = 0; e < 8; ++e)
      chunk.element[e] = static_cast<T>(out[i][e] * inverse_sum);
    *reinterpret_cast<Chunk*>(out_row + column) = chunk;
  }
  if (params.lse != nullptr && lane == 0) {
    constexpr float kLn2 = 0.693147180559945309f;
    params.lse[head_index * params.seqlen_q + row] =
        num_keys > 0 ? (max + log2f(sum)) * kLn2 : -CUDART_INF_F;
  }
}

template <NaiveConfig kConfig>
struct Naive {
  static constexpr NaiveConfig config = kConfig;
  static constexpr DType dtype = kConfig.dtype;
  static constexpr Acc acc = kConfig.acc;
  static constexpr int headdim = kConfig.headdim;
  static constexpr int Br = kConfig.Br;
  static constexpr int Bc = kConfig.Bc;
  static constexpr int num_threads = 32 * kConfig.Br;
  static constexpr int smem_bytes = 0;

  static cudaError_t launch(const ForwardParams& params, cudaStream_t stream) {
    const int64_t ctas =
        int64_t{params.batch} * params.nheads_q * ceil_div(params.seqlen_q, kConfig.Br);
    if (ctas > INT32_MAX) return cudaErrorInvalidConfiguration;
    return launch_kernel(naive_kernel<Naive>, dim3(static_cast<unsigned>(ctas)), num_threads,
                         smem_bytes, stream, params);
  }
};

}  // namespace ffpa
