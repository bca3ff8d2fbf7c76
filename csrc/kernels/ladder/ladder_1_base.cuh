// ladder-1-base: FlashAttention on tensor cores, the whole of it on this page.
//
// Idea       A CTA of four warps owns 64 query rows, 16 to a warp, and walks the keys in tiles of
//            64. S, P and O never leave registers; shared memory holds Q and one tile of K and of
//            V:
//
//              S = Q Kᵀ · scale            m' = max(m, S)            P = e^(S - m')
//              l = l · e^(m - m') + Σ P    O = O · e^(m - m') + P V  at the end: O / l
//
// Expected   An N x N matrix that is never written; half of the official kernel's speed.
//
// Brought    Half of FlashAttention-2's rate (H200, fp16, N = 1024 to 8192; so in the other steps).
//
// Limit      Shared memory: every read of K and V takes two turns (bank conflicts). And tiles pass
//            through registers while nothing else happens.
#pragma once

#include <cuda_runtime.h>
#include <math_constants.h>

#include <type_traits>

#include "launch.cuh"

namespace ffpa {

struct Ladder1BaseConfig {
  DType dtype;
  Acc acc;
  int headdim;
};

// How many CTAs are to share a multiprocessor: a third would spill registers on sm_80.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900
#define LADDER_1_CTAS_PER_SM 2
#else
#define LADDER_1_CTAS_PER_SM 3
#endif

template <class Kernel>
__global__ void __launch_bounds__(Kernel::num_threads, LADDER_1_CTAS_PER_SM)
    ladder_1_base_kernel(const __grid_constant__ ForwardParams params) {
  using T = Element<Kernel::dtype>;
  constexpr int D = Kernel::headdim, Br = Kernel::Br, Bc = Kernel::Bc;
  constexpr unsigned kAllLanes = 0xffffffff;
  constexpr float kLog2E = 1.44269504088896341f;

  const int row_tiles = ceil_div(params.seqlen_q, Br);
  const int64_t head_index = blockIdx.x / row_tiles;
  const int64_t head = head_index % params.nheads_q;
  const int64_t batch = head_index / params.nheads_q;
  const int64_t kv_head = head / (params.nheads_q / params.nheads_kv);
  const int first_row = (row_tiles - 1 - blockIdx.x % row_tiles) * Br;  // the longest first
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;

  // A tile lies in shared memory in slices of 16 columns, one MMA step each, 32 bytes apart.
  extern __shared__ __align__(128) unsigned char smem[];
  constexpr int kSlice = 16 * 64 + 16, kTile = D / 16 * kSlice;
  static_assert(Br == 64 && Bc == 64);
  T* sQ = reinterpret_cast<T*>(smem);
  T* sK = sQ + kTile;
  T* sV = sK + kTile;
  const auto place = [](int row, int column) {
    return column / 16 * kSlice + row * 16 + column % 16;
  };

  // 64 rows of a matrix, D / 8 threads to a row, through registers; zeros past its end.
  constexpr int kRows = Kernel::num_threads / (D / 8), kPasses = 64 / kRows;
  const int tile_row = threadIdx.x / (D / 8), tile_column = threadIdx.x % (D / 8) * 8;
  const auto source_of = [&](const void* matrix, const Strides& strides, int64_t head, int row) {
    return static_cast<const T*>(matrix) + batch * strides.batch + head * strides.head +
           (row + tile_row) * strides.row + tile_column;
  };
  const auto load_tile = [&](T* tile, const T* source, int64_t row_stride, int num_rows) {
    uint4 chunk[kPasses];
    for (int i = 0; i < kPasses; ++i, source += kRows * row_stride) {
      const bool valid = tile_row + i * kRows < num_rows && tile_column < params.headdim;
      chunk[i] = valid ? *reinterpret_cast<const uint4*>(source) : uint4{};
    }
    for (int i = 0; i < kPasses; ++i)
      *reinterpret_cast<uint4*>(tile + place(tile_row + i * kRows, tile_column)) = chunk[i];
  };

  // Four 8 x 8 matrices, each lane giving the address of one row; see the layout of mma in the PTX
  // manual: of a 16 x 8 result, lane i holds the rows i / 4 + 8 h and the columns 2 (i % 4) + c.
  const auto load_matrices = [](unsigned (&m)[4], const T* row, auto transposed) {
    const unsigned address = static_cast<unsigned>(__cvta_generic_to_shared(row));
    if constexpr (transposed) {
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                   : "r"(address)
                   : "memory");
    } else {
      asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                   : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
                   : "r"(address)
                   : "memory");
    }
  };
  const auto mma = [](float (&sum)[2][2], const unsigned (&a)[4], unsigned b0, unsigned b1) {
    if constexpr (Kernel::dtype == DType::fp16) {
      asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
          : "+f"(sum[0][0]), "+f"(sum[0][1]), "+f"(sum[1][0]), "+f"(sum[1][1])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    } else {
      asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
          "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
          : "+f"(sum[0][0]), "+f"(sum[0][1]), "+f"(sum[1][0]), "+f"(sum[1][1])
          : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
    }
  };
  const auto pack = [](float low, float high) {
    const T pair[2] = {static_cast<T>(low), static_cast<T>(high)};
    return *reinterpret_cast<const unsigned*>(pair);
  };
  const auto exp2 = [](float x) {  // by the special function unit
    float y;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
  };
  const auto over_row = [&](float x, auto combine) {  // the four lanes that share a row
    x = combine(x, __shfl_xor_sync(kAllLanes, x, 1));
    return combine(x, __shfl_xor_sync(kAllLanes, x, 2));
  };

  unsigned q[D / 16][4];
  load_tile(sQ, source_of(params.q, params.q_strides, head, first_row), params.q_strides.row,
            params.seqlen_q - first_row);
  __syncthreads();
  for (int step = 0; step < D / 16; ++step) {
    load_matrices(q[step], sQ + place(16 * warp + lane % 16, 16 * step + lane / 16 * 8),
                  std::false_type());
  }

  const float scale = params.scale_log2 * CUDART_LN2_F;
  const int my_row = first_row + 16 * warp + lane / 4;
  const int last_row = min(first_row + Br, params.seqlen_q) - 1;
  const int num_keys = min(params.seqlen_k, last_row + params.diagonal + 1);
  float out[D / 8][2][2] = {};  // [tile of columns][h][c]
  float max[2] = {-CUDART_INF_F, -CUDART_INF_F};
  float sum[2] = {};

  const T* k_source = source_of(params.k, params.k_strides, kv_head, 0);
  const T* v_source = source_of(params.v, params.v_strides, kv_head, 0);
  for (int first_key = 0; first_key < num_keys; first_key += Bc) {
    __syncthreads();  // nobody reads the last tiles any more
    load_tile(sK, k_source, params.k_strides.row, params.seqlen_k - first_key);
    load_tile(sV, v_source, params.v_strides.row, params.seqlen_k - first_key);
    k_source += Bc * params.k_strides.row;
    v_source += Bc * params.v_strides.row;
    __syncthreads();

    float score[Bc / 8][2][2] = {};
    for (int step = 0; step < D / 16; ++step) {
      for (int n = 0; n < Bc / 8; n += 2) {
        unsigned k[4];
        load_matrices(k, sK + place(8 * n + lane / 16 * 8 + lane % 8, 16 * step + lane / 8 % 2 * 8),
                      std::false_type());
        mma(score[n], q[step], k[0], k[1]);
        mma(score[n + 1], q[step], k[2], k[3]);
      }
    }

    for (int h = 0; h < 2; ++h) {
      const int visible = min(params.seqlen_k, my_row + 8 * h + params.diagonal + 1);
      if (first_key + Bc > visible) {  // the causal edge, or the last tile
        for (int n = 0; n < Bc / 8; ++n) {
          for (int c = 0; c < 2; ++c) {
            const int key = first_key + 8 * n + 2 * (lane % 4) + c;
            if (key >= visible) score[n][h][c] = -CUDART_INF_F;
          }
        }
      }
      float top = max[h];
      for (int n = 0; n < Bc / 8; ++n) {
        for (int c = 0; c < 2; ++c) {
          score[n][h][c] *= scale;
          top = fmaxf(top, score[n][h][c]);
        }
      }
      top = over_row(top, [](float a, float b) { return fmaxf(a, b); });
      const float base = top == -CUDART_INF_F ? 0.0f : top;  // no key yet: keeps NaN away
      const float factor = exp2((max[h] - base) * kLog2E);
      max[h] = top;
      float tile_sum = 0.0f;
      for (int n = 0; n < Bc / 8; ++n) {
        for (int c = 0; c < 2; ++c) {
          score[n][h][c] = exp2(fmaf(score[n][h][c], kLog2E, -base * kLog2E));
          tile_sum += score[n][h][c];
        }
      }
      sum[h] = sum[h] * factor + over_row(tile_sum, [](float a, float b) { return a + b; });
      for (int n = 0; n < D / 8; ++n) {
        out[n][h][0] *= factor;
        out[n][h][1] *= factor;
      }
    }

    for (int step = 0; step < Bc / 16; ++step) {
      unsigned p[4];  // the scores' fragments are those of a left operand already
      for (int i = 0; i < 4; ++i) {
        const float (&pair)[2] = score[2 * step + i / 2][i % 2];
        p[i] = pack(pair[0], pair[1]);
      }
      for (int n = 0; n < D / 8; n += 2) {
        unsigned v[4];
        load_matrices(v, sV + place(16 * step + lane % 16, 8 * n + lane / 16 * 8),
                      std::true_type());
        mma(out[n], p, v[0], v[1]);
        mma(out[n + 1], p, v[2], v[3]);
      }
    }
  }

  for (int h = 0; h < 2; ++h) {
    const int row = my_row + 8 * h;
    if (row >= params.seqlen_q) continue;
    if (params.lse != nullptr && lane % 4 == 0) {
      params.lse[head_index * params.seqlen_q + row] = max[h] + logf(sum[h]);
    }
    const float factor = sum[h] == 0.0f ? 0.0f : 1.0f / sum[h];
    T* out_row = static_cast<T*>(params.out) + batch * params.out_strides.batch +
                 head * params.out_strides.head + row * params.out_strides.row;
    for (int n = 0; n < D / 8; ++n) {
      const int column = 8 * n + 2 * (lane % 4);
      if (column >= params.headdim) break;
      *reinterpret_cast<unsigned*>(out_row + column) =
          pack(out[n][h][0] * factor, out[n][h][1] * factor);
    }
  }
}

template <Ladder1BaseConfig kConfig>
struct Ladder1Base {
  static constexpr DType dtype = kConfig.dtype;
  static constexpr Acc acc = kConfig.acc;
  static constexpr int headdim = kConfig.headdim;
  static constexpr int Br = 64;
  static constexpr int Bc = 64;
  static constexpr int num_threads = 128;
  static constexpr int smem_bytes = 3 * (headdim / 16) * (16 * 64 + 16) * 2;

  static cudaError_t launch(const ForwardParams& params, cudaStream_t stream) {
    const int64_t ctas = int64_t{params.batch} * params.nheads_q * ceil_div(params.seqlen_q, Br);
    if (ctas > INT32_MAX) return cudaErrorInvalidConfiguration;
    return launch_kernel(ladder_1_base_kernel<Ladder1Base>, dim3(static_cast<unsigned>(ctas)),
                         num_threads, smem_bytes, stream, params);
  }
};

}  // namespace ffpa
