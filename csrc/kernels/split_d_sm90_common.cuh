// What the structures of split_d-sm90 share: the configuration, the problem as the device sees
// it, and the parts of a consumer warpgroup that depend on none of them.
#pragma once

#include <cuda_fp16.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <type_traits>

#include "config.cuh"
#include "params.h"
#include "prim/device.h"
#include "prim/mbarrier.cuh"
#include "prim/opaque.cuh"
#include "prim/tensor_map.h"
#include "prim/wgmma.cuh"
#include "tile/packed_order.cuh"
#include "tile/store_rows.cuh"
#include "tile/tile_order.cuh"
#include "tile/warpgroup_mask.cuh"
#include "tile/warpgroup_softmax.cuh"

namespace ffpa {

struct SplitDSm90Config {
  DType dtype;
  Acc acc;
  int headdim;
  int ctas;        // that share a query tile: 1 (solo) or 2 (pair and quartet)
  int Br;          // query rows of a tile: 64 for each consumer of a CTA; quartet: 64 for all
  int Bc;          // keys of a step
  int slots;       // of the shared-memory ring that K and V pass through
  bool ping_pong;  // solo: the warpgroups take turns in issuing products
  // pair: what a slot holds, and on how many pieces before the last one products may be under way
  int piece_columns = 128;  // of K
  int piece_keys = 32;      // of V
  int behind = 1;
  bool own_first = false;  // pair: PV over the own keys before the next scores, to save registers
  int query_boxes = 0;     // pair, quartet: boxes of 64 columns of Q that are kept in registers
  bool masks = false;      // takes an attn_mask; without, it costs nothing
  bool splits = false;     // cuts the keys, and packs the rows of heads that share a key head
};

// F16 scores under F32 sums of PV are left out: the compiler serialises the products (C7513).
template <Acc kAcc>
constexpr bool kSupported = kAcc == Acc::f32 || kAcc == Acc::f16 || kAcc == Acc::qk32_pv16;

// What a mask adds would be lost to the rounding of F16 scores: kernels that take one sum S in F32.
template <Acc kAcc, bool kMasks>
using QkSum = std::conditional_t<kAcc == Acc::f16 && !kMasks, __half, float>;
template <Acc kAcc>
using PvSum = std::conditional_t<kAcc == Acc::f16 || kAcc == Acc::qk32_pv16, __half, float>;

constexpr int kWarpgroupRows = 64;
constexpr int kMaxSmemBytes = 227 * 1024;

struct SplitDSm90Problem {
  TileOrder order;
  uint16_t* out;
  Strides out_strides;
  float* lse;  // null: not wanted
  int headdim_v;
  int seqlen_q;
  int seqlen_k;
  int diagonal;
  int heads_per_kv_head;
  float q_factor;          // that Q takes in shared memory: a power of two, 1 unless S is F16
  float score_scale_log2;  // from scores of that Q to exponents of 2
  float scale_log2;        // the same for the softmax: 1 where a mask has made exponents of scores
  ScoreMask mask;          // of kernels that take one
  // Of kernels that split the keys:
  PackedOrder packed;
  float* split_out;
  float* split_state;

  // Calls visit(tile, round) for each tile of `worker`.
  template <class Plan, class Visit>
  __device__ __forceinline__ void for_each_tile(int worker, int num_workers,
                                                const Visit& visit) const {
    if constexpr (Plan::kSplits) {
      ffpa::for_each_tile(packed, worker, num_workers, visit);
    } else {
      ffpa::for_each_tile(order, worker, num_workers, visit);
    }
  }

  template <class Plan>
  int64_t num_tiles() const {
    return Plan::kSplits ? packed.num_tiles() : order.num_tiles();
  }

  // How many of a box's bytes come for a tile of Q.
  template <class Plan>
  __device__ __forceinline__ int query_bytes(int box_bytes) const {
    return Plan::kSplits ? box_bytes / Plan::Br * packed.rows() : box_bytes;
  }

  template <class Plan>
  __device__ __forceinline__ auto key_range_of(const QueryTile& tile) const {
    const int queries = Plan::kSplits ? packed.queries : order.tile_rows;
    const int last_row = min(tile.first_row + queries, seqlen_q) - 1;
    const KeyBlocks blocks = key_blocks(tile.first_row, last_row, Plan::Bc, seqlen_k, diagonal);
    if constexpr (Plan::kSplits) {
      return key_range(blocks, tile.split, packed.splits);
    } else {
      return AllKeys{blocks.count, blocks.unmasked};
    }
  }

  // Whether a row of the tile must not see some key before `end`: KeyBlocks::unmasked, anew in each
  // step, so that it holds no register through the products.
  __device__ __forceinline__ bool hides_before(int end, const QueryTile& tile) const {
    return min(seqlen_k, opaque(tile.first_row) + diagonal + 1) < end;
  }
};

// F16 scores could overflow before the scale shrinks them, so that Q takes the scale's power of two
// first, which rounds only subnormals.
template <class QkSum>
SplitDSm90Problem problem_of(const ForwardParams& params, int tile_rows) {
  const bool f16_scores = std::is_same_v<QkSum, __half>;
  const int exponent = f16_scores ? std::clamp(std::ilogb(params.scale_log2), -14, 0) : 0;
  const float score_scale_log2 = std::ldexp(params.scale_log2, -exponent);
  return {tile_order(params, tile_rows),
          static_cast<uint16_t*>(params.out),
          params.out_strides,
          params.lse,
          params.headdim_v,
          params.seqlen_q,
          params.seqlen_k,
          params.diagonal,
          params.nheads_q / params.nheads_kv,
          std::ldexp(1.0f, exponent),
          score_scale_log2,
          params.mask.kind == ScoreMask::none ? score_scale_log2 : 1.0f,
          params.mask,
          packed_order(params, tile_rows),
          params.split_out,
          params.split_state};
}

// Boxes of a query tile: `boxes` of `columns` columns by one instruction, where they can be. Packed
// rows may be fewer than a box in shared memory has, so that each box comes on its own.
template <class Plan>
cudaError_t make_query_map(PieceMap& map, const SplitDSm90Problem& problem,
                           const ForwardParams& params, int columns, int boxes) {
  const TensorShape shape{params.batch, params.nheads_q, params.seqlen_q, params.headdim};
  const PackedOrder& packed = problem.packed;
  return Plan::kSplits ? make_piece_map(map, Plan::dtype, params.q, shape, params.q_strides,
                                        packed.queries, columns, 1, packed.heads)
                       : make_piece_map(map, Plan::dtype, params.q, shape, params.q_strides,
                                        Plan::Br, columns, boxes);
}

// How many workers, of `ctas` CTAs each, share the tiles. Tiles of unequal weight, under a causal
// mask, are best given out by the hardware: a worker each.
template <class Plan>
cudaError_t count_workers(int& count, const SplitDSm90Problem& problem, const ForwardParams& params,
                          int ctas) {
  const int64_t tiles = problem.num_tiles<Plan>();
  if (ctas * tiles > INT32_MAX) return cudaErrorInvalidConfiguration;
  const bool causal = params.diagonal < params.seqlen_k - 1;
  const cudaError_t status = num_multiprocessors(count);
  if (status != cudaSuccess) return status;
  count = static_cast<int>(causal ? tiles : std::min<int64_t>(count / ctas, tiles));
  return cudaSuccess;
}

// The first of this thread's two rows in its warpgroup's tile; the other is 8 further.
__device__ __forceinline__ int thread_row() {
  return threadIdx.x % kWarpgroupThreads / 32 * 16 + threadIdx.x % 32 / 4;
}

// Multiplies 64 rows of Q in shared memory, by a warpgroup, a box at a time from `rows` on. The
// caller has those who use them meet at a barrier before wgmma reads them.
__device__ __forceinline__ void scale_query(int boxes, uint8_t* rows, int box_bytes, float factor) {
  const __half2 factors = __float2half2_rn(factor);
#pragma unroll 1
  for (int box = 0; box < boxes; ++box) {
    auto* const pairs = reinterpret_cast<__half2*>(rows + box * box_bytes);
#pragma unroll
    for (int i = 0; i < kWarpgroupRows * kBoxColumns / 2; i += kWarpgroupThreads) {
      const int pair = i + threadIdx.x % kWarpgroupThreads;
      pairs[pair] = __hmul2(pairs[pair], factors);
    }
  }
  fence_async_proxy();
}

// Hides what the rows from `first_row` on must not see of the keys from `first_key` on.
template <class Scores>
__device__ __forceinline__ void mask_keys(Scores& scores, const SplitDSm90Problem& problem,
                                          int first_row, int first_key) {
  const int end = first_row + thread_row() + problem.diagonal + 1;
  const int visible[2] = {min(problem.seqlen_k, end) - first_key,
                          min(problem.seqlen_k, end + 8) - first_key};
  mask(scores, visible);
}

// The same for the rows of several heads.
template <class Scores>
__device__ __forceinline__ void mask_packed_keys(Scores& scores, const SplitDSm90Problem& problem,
                                                 const QueryTile& tile, int first_row,
                                                 int first_key) {
  int visible[2];
#pragma unroll
  for (int r = 0; r < 2; ++r) {
    const int row = first_row - tile.first_row + thread_row() + 8 * r;
    const int end = problem.packed.query(tile, row) + problem.diagonal + 1;
    visible[r] = min(problem.seqlen_k, end) - first_key;
  }
  mask(scores, visible);
}

// Adds attn_mask, and hides what rows must not see where `hides` says that there is any.
template <class Plan, class Scores>
__device__ __forceinline__ void mask_scores(Scores& scores, const SplitDSm90Problem& problem,
                                            const QueryTile& tile, int first_row, int first_key,
                                            bool hides) {
  if constexpr (Plan::kMasks) {
    const ScoreMask& mask = problem.mask;
    if (mask.kind != ScoreMask::none) {
      const auto row_offset = [&](int r) {
        // Opaque, so that no part of it holds registers through the products.
        const int row = opaque(first_row) + thread_row() + 8 * r;
        int head = opaque(tile.head);
        int query = row;
        if constexpr (Plan::kSplits) {
          const PackedRow place =
              problem.packed.place(tile, row - tile.first_row, problem.seqlen_q);
          head = min(place.head, problem.order.nheads - 1);
          query = place.query;
        }
        return opaque(tile.batch) * mask.batch + head * mask.head +
               min(query, problem.seqlen_q - 1) * mask.row;
      };
      add_mask<Element<Plan::dtype>>(scores, problem.score_scale_log2, mask, row_offset, first_key,
                                     problem.seqlen_k);
      // Of the next step's, which is the tile before in memory.
      if (first_key >= Plan::Bc) {
        prefetch_mask<Scores::kPairs * 4>(mask, row_offset, first_key - Plan::Bc);
      }
    }
  }
  if constexpr (Plan::kSplits) {
    if (hides) mask_packed_keys(scores, problem, tile, first_row, first_key);
  } else {
    if (hides) mask_keys(scores, problem, first_row, first_key);
  }
}

// Stores a warpgroup's `columns` of O, from `first_column` on.
template <DType kDType, class Output>
__device__ __forceinline__ void store_output(const Output& output, const float (&factor)[2],
                                             const SplitDSm90Problem& problem, int first_row,
                                             int first_column, int columns, const QueryTile& tile) {
  const Strides& strides = problem.out_strides;
  const OutputRows rows{problem.out + tile.batch * strides.batch + tile.head * strides.head,
                        strides.row, problem.seqlen_q,
                        min(first_column + columns, problem.headdim_v)};
  store_rows<kDType>(output, factor, rows, first_row + thread_row(), first_column);
}

__device__ __forceinline__ void store_lse(const float (&lse)[2], const SplitDSm90Problem& problem,
                                          int first_row, const QueryTile& tile) {
  if (problem.lse == nullptr || threadIdx.x % 4 != 0) return;
  const int row = first_row + thread_row();
  const int64_t head = int64_t{tile.batch} * problem.order.nheads + tile.head;
  float* const of_head = problem.lse + head * problem.seqlen_q;
  if (row < problem.seqlen_q) of_head[row] = lse[0];
  if (row + 8 < problem.seqlen_q) of_head[row + 8] = lse[1];
}

}  // namespace ffpa
