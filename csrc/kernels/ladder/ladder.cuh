// What the steps of the ladder share: a CTA's place in the problem and its way through shared
// memory. Each step shows its own main loop over these pieces; step 1 uses none of them.
//
// A CTA owns Br query rows of one head and walks the keys in tiles of Bc; a warp owns
// kRowTiles * 16 of the rows. Shared memory holds Q and, step by step, tiles of K and V.
#pragma once

#include <cuda_runtime.h>

#include "kernels/ladder/products.cuh"
#include "kernels/ladder/tile_source.cuh"
#include "launch.cuh"
#include "tile/tile_order.cuh"
#include "tile/warp_softmax.cuh"

namespace ffpa {

struct LadderConfig {
  DType dtype;
  Acc acc;
  int headdim;
  int Br;
  int Bc;
  int warps;
  int ctas_per_sm;  // what the register allocation aims at
};

// How a tile of so many rows lies in shared memory, to steps 1 to 3: in slices of 16 columns, as
// the products consume it. Eight rows of one slice, what ldmatrix reads at a time, then span 256
// bytes and use half of the banks, each twice. 32 bytes between slices let a row be written without
// conflicts.
template <int kNumRows>
struct SlicedPanel {
  static constexpr int kRows = kNumRows;
  static constexpr int kColumns = 64;
  static constexpr int kChunks = 8;
  static constexpr int kPitch = 32;
  static constexpr int kSliceBytes = kRows * kPitch + 32;
  static constexpr int kBytes = 4 * kSliceBytes;

  static __device__ __forceinline__ uint32_t offset(int row, int chunk) {
    return chunk / 2 * kSliceBytes + row * kPitch + chunk % 2 * 16;
  }
  // For whole slices.
  static __device__ __forceinline__ uint32_t advance(uint32_t address, int chunks) {
    return address + chunks / 2 * kSliceBytes;
  }
};

// And from step 4 on.
template <int kNumRows>
using SwizzledPanel = Panel<kNumRows, true>;

template <LadderConfig kConfig, template <int> class PanelOf>
struct LadderCta {
  using Element = ffpa::Element<kConfig.dtype>;
  static constexpr int kThreads = 32 * kConfig.warps;
  static constexpr int kWarpRows = kConfig.Br / kConfig.warps;
  static constexpr int kRowTiles = kWarpRows / 16;
  static constexpr int kScoreTiles = kConfig.Bc / 8;
  static constexpr int kOutTiles = kConfig.headdim / 8;
  static constexpr int kHeadSteps = kConfig.headdim / 16;  // MMA steps of QKᵀ
  static constexpr int kKeySteps = kConfig.Bc / 16;        // and of PV

  using PanelQ = PanelOf<kConfig.Br>;
  using PanelKv = PanelOf<kConfig.Bc>;
  using SourceQ = TileSource<PanelQ, kConfig.headdim, kThreads, Element>;
  using SourceKv = TileSource<PanelKv, kConfig.headdim, kThreads, Element>;
  static constexpr int kBytesQ = SourceQ::kTileBytes;
  static constexpr int kBytesKv = SourceKv::kTileBytes;

  using Scores = ffpa::Scores<kRowTiles, kScoreTiles>;
  using ScoreSums = Tile16x8<float>[kRowTiles][kScoreTiles];
  using OutSums = Tile16x8<float>[kRowTiles][kOutTiles];
  using FragmentsQ = FragmentsA<kHeadSteps, kRowTiles>;
  using FragmentsP = FragmentsA<kKeySteps, kRowTiles>;

  const ForwardParams& params;
  KeyBlocks blocks;
  SourceQ q;
  SourceKv k;
  SourceKv v;
  OutSums out;

  __device__ __forceinline__ explicit LadderCta(const ForwardParams& params)
      : params(params),
        blocks(key_blocks(first_row(), min(first_row() + kConfig.Br, params.seqlen_q) - 1,
                          kConfig.Bc, params.seqlen_k, params.diagonal)),
        q(params.q, params.q_strides, blockIdx.z, blockIdx.y, first_row(), params.seqlen_q,
          params.headdim),
        k(params.k, params.k_strides, blockIdx.z, kv_head(params), 0, params.seqlen_k,
          params.headdim),
        v(params.v, params.v_strides, blockIdx.z, kv_head(params), 0, params.seqlen_k,
          params.headdim) {
#pragma unroll
    for (auto& row : out) {
#pragma unroll
      for (auto& tile : row)
        tile.clear();
    }
  }

  // The grid: tiles of rows x heads x batch, last rows first: under a mask they have the most keys.
  static __device__ __forceinline__ int first_row() {
    return (gridDim.x - 1 - blockIdx.x) * kConfig.Br;
  }
  static __device__ __forceinline__ int kv_head(const ForwardParams& params) {
    return blockIdx.y / (params.nheads_q / params.nheads_kv);
  }

  // This lane's first row and column in the fragments of a result.
  static __device__ __forceinline__ int my_row() {
    return threadIdx.x / 32 * kWarpRows + threadIdx.x % 32 / 4;
  }
  static __device__ __forceinline__ int my_column() { return 2 * (threadIdx.x % 4); }

  // Q of this warp, from the tile at `smem`.
  __device__ __forceinline__ auto tile_q(uint32_t smem) const {
    return OperandQ<PanelQ, kHeadSteps>(smem + threadIdx.x / 32 * kWarpRows * PanelQ::kPitch);
  }
  static __device__ __forceinline__ auto tile_k(uint32_t smem) { return OperandK<PanelKv>(smem); }
  static __device__ __forceinline__ auto tile_v(uint32_t smem) { return OperandV<PanelKv>(smem); }

  // Q of this warp into registers.
  __device__ __forceinline__ void load_q(uint32_t smem, FragmentsQ& q) const {
#pragma unroll
    for (int k = 0; k < kHeadSteps; ++k)
      tile_q(smem).load(q.step[k], k);
  }

  // Takes the scores of a tile of keys out of their fragments, -inf where a key is hidden.
  __device__ __forceinline__ void scores_of(const ScoreSums& sums, int block,
                                            Scores& scores) const {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int n = 0; n < kScoreTiles; ++n) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          scores[r][n][h][0] = sums[r][n].value[h][0];
          scores[r][n][h][1] = sums[r][n].value[h][1];
        }
      }
    }
    if (block >= blocks.unmasked) {
      mask<kRowTiles, kScoreTiles>(scores, first_row() + my_row(), block * kConfig.Bc + my_column(),
                                   params.seqlen_k, params.diagonal);
    }
  }

  __device__ __forceinline__ void scale_out(const PerRow<kRowTiles>& factor) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int n = 0; n < kOutTiles; ++n) {
        out[r][n].scale_row(0, factor[r][0]);
        out[r][n].scale_row(1, factor[r][1]);
      }
    }
  }

  // P as A operand: the scores' fragments are its fragments already.
  static __device__ __forceinline__ void pack(const Scores& weights, FragmentsP& p) {
#pragma unroll
    for (int step = 0; step < kKeySteps; ++step) {
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const float (&pair)[2] = weights[r][2 * step + i / 2][i % 2];
          p.step[step][r][i] = pack_pair<Element>(pair[0], pair[1]);
        }
      }
    }
  }

  // Writes O / sum and the log-sum-exp.
  template <class Softmax>
  __device__ __forceinline__ void store(Softmax& softmax) const {
    cp_async_wait_all();  // of a tile past the last, which some steps ask for
    softmax.finish();
    Element* matrix = static_cast<Element*>(params.out) +
                      offset_of(params.out_strides, blockIdx.z, blockIdx.y, first_row());
    float* lse_rows = params.lse +
                      (int64_t{blockIdx.z} * params.nheads_q + blockIdx.y) * params.seqlen_q +
                      first_row();
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = my_row() + 16 * r + 8 * h;
        if (row >= params.seqlen_q - first_row()) continue;
        if (params.lse != nullptr && threadIdx.x % 4 == 0) {
          lse_rows[row] = softmax.log_sum_exp(r, h);
        }
        const float sum = softmax.sum[r][h];
        const float factor = sum == 0.0f ? 0.0f : 1.0f / sum;
#pragma unroll
        for (int n = 0; n < kOutTiles; ++n) {
          const int column = 8 * n + my_column();
          if (column >= params.headdim) continue;
          const float2 pair = out[r][n].row(h);
          *reinterpret_cast<uint32_t*>(matrix + row * params.out_strides.row + column) =
              pack_pair<Element>(pair.x * factor, pair.y * factor);
        }
      }
    }
  }
};

template <class Step>
__global__ void __launch_bounds__(Step::num_threads, Step::kCtasPerSm)
    ladder_kernel(const __grid_constant__ ForwardParams params) {
  extern __shared__ __align__(128) unsigned char smem[];
  Step::run(params, smem);
}

// What launch.cuh asks of a kernel type; `Step` adds smem_bytes and run(params, smem).
template <class Step, LadderConfig kConfig>
struct LadderKernel {
  static constexpr DType dtype = kConfig.dtype;
  static constexpr Acc acc = kConfig.acc;
  static constexpr int headdim = kConfig.headdim;
  static constexpr int Br = kConfig.Br;
  static constexpr int Bc = kConfig.Bc;
  static constexpr int num_threads = 32 * kConfig.warps;
  static constexpr int kCtasPerSm = kConfig.ctas_per_sm;
  static_assert(kConfig.acc == Acc::f32, "the ladder sums in F32");

  static cudaError_t launch(const ForwardParams& params, cudaStream_t stream) {
    const dim3 grid(ceil_div(params.seqlen_q, kConfig.Br), params.nheads_q, params.batch);
    return launch_kernel(ladder_kernel<Step>, grid, num_threads, Step::smem_bytes, stream, params);
  }
};

}  // namespace ffpa
