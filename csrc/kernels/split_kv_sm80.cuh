// split_kv-sm80: few queries, many keys. The keys are split over CTAs, and D over the warps of one.
//
// With few queries the time is that of reading K and V once, so the work is cut along the keys
// until it fills the chip. The query heads that share a key head are rows of the same tile: row r
// is query r / group of head r % group, so that a CTA reads its keys for all of them.
//
// A warp owns 64 columns: of Q in registers, of K and V in a ring of its own that it alone fills
// and reads, and of O. No barrier stands between memory and the tensor cores; warps meet only to
// add up their parts of S = QKᵀ. Their number is headdim / 64, at run time, so one kernel serves
// every D.
//
//   ring of a warp    stages slots of Bc keys x 64 columns: K, V, K, V, ...
//   S                 every warp leaves its part, all threads add a share of it in a fixed order
//                     and put the mask on it, every warp reads the total: two barriers per Bc keys
//   softmax           in every warp alike, so P needs no exchange
//
// What a split leaves behind is O before the division, and the base and sum of each row. The second
// kernel (merge_splits.cuh) adds the splits up; a split that saw no key has a sum of zero.
#pragma once

#include <cuda_runtime.h>

#include "kernels/merge_splits.cuh"
#include "launch.cuh"
#include "prim/cp_async.cuh"
#include "prim/ldmatrix.cuh"
#include "prim/mma_sm80.cuh"
#include "prim/swizzle.cuh"
#include "tile/score_mask.cuh"
#include "tile/warp_softmax.cuh"

namespace ffpa {

struct SplitKvSm80Config {
  DType dtype;
  Acc acc;
  int headdim;
  int Br;           // the most rows of a tile; up to 16 take a tile of 16
  int stages;       // slots of a warp's ring
  int ctas_per_sm;  // what the register allocation aims at with 16 rows
};

template <SplitKvSm80Config kConfig, int kRowTiles>
class SplitKvSm80Cta {
  using Element = ffpa::Element<kConfig.dtype>;
  using Panel = ffpa::Panel<16, true>;

 public:
  static constexpr int kRows = 16 * kRowTiles;
  static constexpr int kKeys = Panel::kRows;
  static constexpr int kColumns = Panel::kColumns;
  static constexpr int kColumnTiles = kColumns / 8;
  static constexpr int kKeyTiles = kKeys / 8;
  static constexpr int kMaxThreads = 32 * kConfig.headdim / kColumns;
  static constexpr int kCtasPerSm = kRowTiles == 1 ? kConfig.ctas_per_sm : 1;

  static constexpr int kScoreVectors = 32 * kRowTiles * kKeyTiles;  // of one warp, float4
  static constexpr int kRingBytes = kConfig.stages * Panel::kBytes;
  static constexpr int smem_bytes(int warps) {
    return warps * kRingBytes + (warps + 1) * kScoreVectors * static_cast<int>(sizeof(float4));
  }

  static int row_tiles(const ForwardParams& params) {
    return ceil_div(params.nheads_q / params.nheads_kv * params.seqlen_q, kRows);
  }

  __device__ __forceinline__ SplitKvSm80Cta(const ForwardParams& params, unsigned char* smem)
      : params_(params),
        warps_(blockDim.x / 32),
        warp_(threadIdx.x / 32),
        lane_(threadIdx.x % 32),
        group_(params.nheads_q / params.nheads_kv),
        ring_(shared_address(smem) + warp_ * kRingBytes),
        parts_(reinterpret_cast<float4*>(smem + warps_ * kRingBytes)) {
    // The tiles of one range of keys are neighbours: they find it in L2.
    const int rows = group_ * params.seqlen_q;
    const int tiles = ceil_div(rows, kRows);
    const int range = blockIdx.x / tiles;
    const int head = range / params.splits;
    first_row_ = blockIdx.x % tiles * kRows;
    split_ = range % params.splits;
    kv_head_ = head % params.nheads_kv;
    batch_ = head / params.nheads_kv;

    const int last_row = min(first_row_ + kRows, rows) - 1;
    const int64_t key_tiles = ceil_div(max(0, visible_keys(last_row)), kKeys);
    first_tile_ = static_cast<int>(key_tiles * split_ / params.splits);
    end_tile_ = static_cast<int>(key_tiles * (split_ + 1) / params.splits);
  }

  __device__ __forceinline__ void run() {
    load_q();
    start_copies();
    softmax_.reset();
    for (auto& row_tile : out_) {
      for (auto& tile : row_tile)
        tile.clear();
    }
#pragma unroll 1
    for (int tile = first_tile_; tile < end_tile_; ++tile) {
      Scores<kRowTiles, kKeyTiles> scores;
      compute_scores(scores, tile * kKeys);
      hide_keys(scores, tile * kKeys);
      // A mask makes exponents of scores.
      const float scale_log2 = masked() ? 1.0f : params_.scale_log2;
      if (move_base(scores, scale_log2)) {
        scale_scores<kRowTiles, kKeyTiles>(scores, scale_log2);
        softmax_.exponentiate(scores, 1.0f);
      } else {
        softmax_.exponentiate(scores, scale_log2);
      }
      add_values(scores);
    }
    cp_async_wait_group<0>();
    store();
  }

 private:
  // Row r sees so many keys; zero or less: none.
  __device__ __forceinline__ int visible_keys(int row) const {
    return min(params_.seqlen_k, row / group_ + params_.diagonal + 1);
  }
  // This lane's rows of a fragment.
  __device__ __forceinline__ int row(int row_tile, int h) const {
    return first_row_ + 16 * row_tile + 8 * h + lane_ / 4;
  }
  __device__ __forceinline__ bool exists(int row) const { return row < group_ * params_.seqlen_q; }
  __device__ __forceinline__ int64_t query_head(int row) const {
    return int64_t{kv_head_} * group_ + row % group_;
  }

  // Q as A operand, straight from global memory: it is read once.
  __device__ __forceinline__ void load_q() {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int row = this->row(r, h);
        const Element* q =
            static_cast<const Element*>(params_.q) + batch_ * params_.q_strides.batch +
            query_head(row) * params_.q_strides.head + row / group_ * params_.q_strides.row;
#pragma unroll
        for (int step = 0; step < 4; ++step) {
#pragma unroll
          for (int half = 0; half < 2; ++half) {
            const int column = kColumns * warp_ + 16 * step + 8 * half + 2 * (lane_ % 4);
            const bool valid = exists(row) && column < params_.headdim;
            q_[step][r][2 * half + h] = valid ? *reinterpret_cast<const uint32_t*>(q + column) : 0;
          }
        }
      }
    }
  }

  // This lane copies eight columns of every fourth key of a slice.
  __device__ __forceinline__ const Element* copies_from(const void* matrix, const Strides& strides,
                                                        int column) const {
    return static_cast<const Element*>(matrix) + batch_ * strides.batch + kv_head_ * strides.head +
           (int64_t{first_tile_} * kKeys + lane_ / Panel::kChunks) * strides.row + column;
  }

  __device__ __forceinline__ int copied_column() const {
    return kColumns * warp_ + 8 * (lane_ % Panel::kChunks);
  }

  __device__ __forceinline__ void start_copies() {
    next_k_ = copies_from(params_.k, params_.k_strides, copied_column());
    next_v_ = copies_from(params_.v, params_.v_strides, copied_column());
    next_tile_ = first_tile_;
#pragma unroll
    for (int slice = 0; slice < kConfig.stages - 1; ++slice)
      copy_slice(slice % 2, slice);
    slot_ = 0;
  }

  // Starts the copies of the next slice, of V or of K. Past the columns or keys it fills in zeros,
  // past the last tile nothing.
  __device__ __forceinline__ void copy_slice(bool of_v, int slot) {
    const int64_t stride = of_v ? params_.v_strides.row : params_.k_strides.row;
    const Element*& next = of_v ? next_v_ : next_k_;
    const uint32_t target = ring_ + slot * Panel::kBytes;
    const int key = next_tile_ * kKeys + lane_ / Panel::kChunks;
    const bool copies =
        next_tile_ < end_tile_ && copied_column() < (of_v ? params_.headdim_v : params_.headdim);
    constexpr int kPassKeys = 32 / Panel::kChunks;
#pragma unroll
    for (int first = 0; first < kKeys; first += kPassKeys) {
      cp_async_16(target + Panel::offset(first + lane_ / Panel::kChunks, lane_ % Panel::kChunks),
                  next + first * stride, copies && key + first < params_.seqlen_k);
    }
    cp_async_commit();
    next += kKeys * stride;
    if (of_v) ++next_tile_;
  }

  // The address of the next slice of K or V. All lanes are done with the one before: its slot takes
  // the copies of the slice stages - 1 further on.
  __device__ __forceinline__ uint32_t acquire(bool of_v) {
    cp_async_wait_group<kConfig.stages - 2>();
    __syncwarp();
    const uint32_t slice = ring_ + slot_ * Panel::kBytes;
    copy_slice(kConfig.stages % 2 ? of_v : !of_v, slot_ == 0 ? kConfig.stages - 1 : slot_ - 1);
    slot_ = slot_ + 1 == kConfig.stages ? 0 : slot_ + 1;
    return slice;
  }

  // S = Q Kᵀ of one tile of keys, over all columns.
  __device__ __forceinline__ void compute_scores(Scores<kRowTiles, kKeyTiles>& scores,
                                                 int first_key) {
    Tile16x8<float> sums[kRowTiles][kKeyTiles];
    for (auto& row_tile : sums) {
      for (auto& tile : row_tile)
        tile.clear();
    }
    const uint32_t k = acquire(false) + Panel::offset(lane_ / 16 * 8 + lane_ % 8, lane_ / 8 % 2);
#pragma unroll
    for (int step = 0; step < 4; ++step) {
      uint32_t b[4];
      ldmatrix_x4(b, Panel::advance(k, 2 * step));
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        mma<Element>(sums[r][0], q_[step][r], b[0], b[1]);
        mma<Element>(sums[r][1], q_[step][r], b[2], b[3]);
      }
    }
    if (warps_ > 1) {
      add_over_warps(sums, first_key);
    } else if (masked()) {
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
        for (int n = 0; n < kKeyTiles; ++n)
          put_mask_on(sums[r][n], r, first_key + 8 * n, lane_);
      }
    }
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          scores[r][n][h][0] = sums[r][n].value[h][0];
          scores[r][n][h][1] = sums[r][n].value[h][1];
        }
      }
    }
  }

  __device__ __forceinline__ void add_over_warps(Tile16x8<float> (&sums)[kRowTiles][kKeyTiles],
                                                 int first_key) {
    float4* total = parts_ + warps_ * kScoreVectors;
    const auto for_my_vectors = [&](float4* vectors, const auto& visit) {
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
        for (int n = 0; n < kKeyTiles; ++n)
          visit(vectors[32 * (r * kKeyTiles + n) + lane_], sums[r][n].value);
      }
    };
    for_my_vectors(parts_ + warp_ * kScoreVectors, [](float4& vector, const float (&sum)[2][2]) {
      vector = {sum[0][0], sum[0][1], sum[1][0], sum[1][1]};
    });
    __syncthreads();
    for (int i = threadIdx.x; i < kScoreVectors; i += blockDim.x) {
      float4 sum = parts_[i];
      for (int warp = 1; warp < warps_; ++warp) {
        const float4 part = parts_[warp * kScoreVectors + i];
        sum = {sum.x + part.x, sum.y + part.y, sum.z + part.z, sum.w + part.w};
      }
      if (masked()) {
        Tile16x8<float> tile = {{{sum.x, sum.y}, {sum.z, sum.w}}};
        const int n = i / 32 % kKeyTiles;
        put_mask_on(tile, i / 32 / kKeyTiles, first_key + 8 * n, i % 32);
        sum = {tile.value[0][0], tile.value[0][1], tile.value[1][0], tile.value[1][1]};
      }
      total[i] = sum;
    }
    __syncthreads();
    for_my_vectors(total, [](const float4& vector, float (&sum)[2][2]) {
      sum[0][0] = vector.x;
      sum[0][1] = vector.y;
      sum[1][0] = vector.z;
      sum[1][1] = vector.w;
    });
  }

  __device__ __forceinline__ bool masked() const { return params_.mask.kind != ScoreMask::none; }

  // What `lane` holds of a tile becomes exponents of 2.
  __device__ __forceinline__ void put_mask_on(Tile16x8<float>& tile, int row_tile, int first_key,
                                              int lane) const {
    const ScoreMask& mask = params_.mask;
    Scores<1, 1> scores = {
        {{{tile.value[0][0], tile.value[0][1]}, {tile.value[1][0], tile.value[1][1]}}}};
    add_mask<Element, 1, 1>(scores, params_.scale_log2, mask, first_key + 2 * (lane % 4),
                            params_.seqlen_k, [&](int, int h) {
                              const int row = first_row_ + 16 * row_tile + 8 * h + lane / 4;
                              if (!exists(row)) return int64_t{-1};
                              return batch_ * mask.batch + query_head(row) * mask.head +
                                     row / group_ * mask.row;
                            });
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      tile.value[h][0] = scores[0][0][h][0];
      tile.value[h][1] = scores[0][0][h][1];
    }
  }

  __device__ __forceinline__ void hide_keys(Scores<kRowTiles, kKeyTiles>& scores,
                                            int first_key) const {
    if (first_key + kKeys <= visible_keys(first_row_)) return;
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const int visible = visible_keys(row(r, h)) - first_key - 2 * (lane_ % 4);
#pragma unroll
        for (int n = 0; n < kKeyTiles; ++n) {
#pragma unroll
          for (int c = 0; c < 2; ++c) {
            if (8 * n + c >= visible) scores[r][n][h][c] = -kInfinity;
          }
        }
      }
    }
  }

  // Moves the bases up to a tile's scores and O with them; false if all stay.
  __device__ __forceinline__ bool move_base(const Scores<kRowTiles, kKeyTiles>& scores,
                                            float scale_log2) {
    PerRow<kRowTiles> factor;
    row_maxima<kRowTiles, kKeyTiles>(scores, factor);
    if (!softmax_.move_base(factor, scale_log2, factor)) return false;
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
#pragma unroll
        for (int n = 0; n < kColumnTiles; ++n)
          out_[r][n].scale_row(h, factor[r][h]);
      }
    }
    return true;
  }

  // O += P V of one tile of keys.
  __device__ __forceinline__ void add_values(const Scores<kRowTiles, kKeyTiles>& weights) {
    uint32_t p[kRowTiles][4];
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float (&pair)[2] = weights[r][i / 2][i % 2];
        p[r][i] = pack_pair<Element>(pair[0], pair[1]);
      }
    }
    const uint32_t v = acquire(true) + Panel::offset(lane_ % 16, lane_ / 16);
#pragma unroll
    for (int n = 0; n < kColumnTiles; n += 2) {
      uint32_t b[4];
      ldmatrix_x4_trans(b, Panel::advance(v, n));
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        mma<Element>(out_[r][n], p[r], b[0], b[1]);
        mma<Element>(out_[r][n + 1], p[r], b[2], b[3]);
      }
    }
  }

  __device__ __forceinline__ void store() {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float base = softmax_.base[r][h];
        const float sum = reduce_quad(softmax_.sum[r][h], Plus());
        const int row = this->row(r, h);
        if (!exists(row)) continue;
        const int64_t index =
            (batch_ * params_.nheads_q + query_head(row)) * params_.seqlen_q + row / group_;
        const bool speaks = warp_ == 0 && lane_ % 4 == 0;
        if (params_.splits == 1) {
          if (speaks && params_.lse != nullptr) params_.lse[index] = log_sum_exp(base, sum);
          store_row(r, h, sum == 0.0f ? 0.0f : 1.0f / sum);
        } else {
          const int64_t part = index * params_.splits + split_;
          if (speaks) reinterpret_cast<float2*>(params_.split_state)[part] = {base, sum};
          if (sum != 0.0f) store_part(r, h, params_.split_out + part * params_.headdim_v);
        }
      }
    }
  }

  // Calls visit(tile, column) for this lane's pairs of columns.
  template <class Visit>
  __device__ __forceinline__ void for_my_columns(int r, const Visit& visit) const {
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
      const int column = kColumns * warp_ + 8 * n + 2 * (lane_ % 4);
      if (column < params_.headdim_v) visit(out_[r][n], column);
    }
  }

  __device__ __forceinline__ void store_row(int r, int h, float factor) const {
    const int row = this->row(r, h);
    Element* out = static_cast<Element*>(params_.out) + batch_ * params_.out_strides.batch +
                   query_head(row) * params_.out_strides.head +
                   row / group_ * params_.out_strides.row;
    for_my_columns(r, [&](const Tile16x8<float>& tile, int column) {
      const float2 pair = tile.row(h);
      *reinterpret_cast<uint32_t*>(out + column) =
          pack_pair<Element>(pair.x * factor, pair.y * factor);
    });
  }

  __device__ __forceinline__ void store_part(int r, int h, float* part) const {
    for_my_columns(r, [&](const Tile16x8<float>& tile, int column) {
      *reinterpret_cast<float2*>(part + column) = tile.row(h);
    });
  }

  const ForwardParams& params_;
  int warps_;
  int warp_;
  int lane_;
  int group_;
  uint32_t ring_;  // this warp's
  float4* parts_;  // [warps + 1][kScoreVectors]: S of each warp, then of all
  int first_row_;
  int split_;
  int64_t kv_head_;
  int64_t batch_;
  int first_tile_;
  int end_tile_;
  const Element* next_k_;  // this lane's place in the slices that are copied next
  const Element* next_v_;
  int next_tile_;
  int slot_;
  uint32_t q_[4][kRowTiles][4];  // by MMA step
  WarpSoftmax<kRowTiles, 8> softmax_;
  Tile16x8<float> out_[kRowTiles][kColumnTiles];
};

template <class Cta>
__global__ void __launch_bounds__(Cta::kMaxThreads, Cta::kCtasPerSm)
    split_kv_sm80_kernel(const __grid_constant__ ForwardParams params) {
  extern __shared__ __align__(128) unsigned char smem[];
  Cta(params, smem).run();
}

template <SplitKvSm80Config kConfig>
struct SplitKvSm80 {
  using Narrow = SplitKvSm80Cta<kConfig, 1>;
  using Wide = SplitKvSm80Cta<kConfig, kConfig.Br / 16>;
  static constexpr DType dtype = kConfig.dtype;
  static constexpr Acc acc = kConfig.acc;
  static constexpr int headdim = kConfig.headdim;
  static constexpr int Br = kConfig.Br;
  static constexpr int Bc = Wide::kKeys;
  static constexpr int num_threads = Wide::kMaxThreads;
  static constexpr int smem_bytes = Wide::smem_bytes(num_threads / 32);

  static_assert(kConfig.acc == Acc::f32 && kConfig.headdim % Wide::kColumns == 0);
  static_assert(kConfig.Br % 16 == 0 && kConfig.stages >= 2);

  static cudaError_t launch(const ForwardParams& params, cudaStream_t stream) {
    const int64_t rows = int64_t{params.nheads_q} / params.nheads_kv * params.seqlen_q;
    if (rows > INT32_MAX - Wide::kRows) return cudaErrorInvalidConfiguration;
    const cudaError_t status = rows <= Narrow::kRows ? launch_ctas<Narrow>(params, stream)
                                                     : launch_ctas<Wide>(params, stream);
    if (status != cudaSuccess || params.splits == 1) return status;
    return launch_merge<SplitKvSm80>(params, stream);
  }

 private:
  template <class Cta>
  static cudaError_t launch_ctas(const ForwardParams& params, cudaStream_t stream) {
    const int64_t ctas =
        int64_t{params.batch} * params.nheads_kv * params.splits * Cta::row_tiles(params);
    if (ctas > INT32_MAX) return cudaErrorInvalidConfiguration;
    const int warps = ceil_div(params.headdim, Cta::kColumns);
    return launch_kernel(split_kv_sm80_kernel<Cta>, dim3(static_cast<unsigned>(ctas)), 32 * warps,
                         Cta::smem_bytes(warps), stream, params);
  }
};

}  // namespace ffpa
