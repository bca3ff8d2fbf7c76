// Which query tile a persistent worker (a CTA or a cluster) takes next, and which keys it needs.
#pragma once

#include "config.cuh"
#include "params.h"

namespace ffpa {

struct QueryTile {
  int first_row;
  int head;
  int batch;
  int split = 0;  // of its keys, where they are cut (tile/packed_order.cuh)
};

// The tile of `worker` in its `round`-th turn. Workers take turns in alternating direction, so that
// none is always served first.
__device__ __forceinline__ int tile_index(int round, int worker, int num_workers) {
  return round * num_workers + (round % 2 == 0 ? worker : num_workers - 1 - worker);
}

// Calls visit(tile, round) for each tile of `worker` in an order of tiles, which offers num_tiles()
// and tile(index).
template <class Order, class Visit>
__device__ __forceinline__ void for_each_tile(const Order& order, int worker, int num_workers,
                                              const Visit& visit) {
#pragma unroll 1
  for (int round = 0;; ++round) {
    const int next = tile_index(round, worker, num_workers);
    if (next >= order.num_tiles()) return;
    visit(order.tile(next), round);
  }
}

// All query tiles, in groups of heads whose keys and values stay in L2 together; within a group the
// tiles of the last rows come first, because under a causal mask they are the heaviest.
struct TileOrder {
  int tiles_per_head;
  int heads;   // of all batches together
  int nheads;  // of one batch
  int heads_per_group;
  int tile_rows;

  __host__ __device__ int num_tiles() const { return tiles_per_head * heads; }

  __device__ __forceinline__ QueryTile tile(int index) const {
    const int tiles_per_group = tiles_per_head * heads_per_group;
    const int group = index / tiles_per_group;
    const int in_group = index % tiles_per_group;
    const int first_head = group * heads_per_group;
    const int group_heads = min(heads_per_group, heads - first_head);
    const int head = first_head + in_group % group_heads;
    const int row_tile = tiles_per_head - 1 - in_group / group_heads;
    return {row_tile * tile_rows, head % nheads, head / nheads};
  }
};

inline TileOrder tile_order(const ForwardParams& params, int tile_rows) {
  // Keys and values of the heads in work should stay in the 50 MB of L2, beside the next group's.
  constexpr int64_t kGroupBytes = 24 << 20;
  const int64_t bytes_per_kv_head =
      int64_t{2} * params.seqlen_k * (params.headdim + params.headdim_v);
  const int64_t kv_heads = kGroupBytes / bytes_per_kv_head;
  const int64_t heads = int64_t{params.batch} * params.nheads_q;
  const int64_t heads_per_kv_head = params.nheads_q / params.nheads_kv;
  int64_t group = (kv_heads < 1 ? 1 : kv_heads) * heads_per_kv_head;
  if (group > heads) group = heads;
  return {ceil_div(params.seqlen_q, tile_rows), static_cast<int>(heads), params.nheads_q,
          static_cast<int>(group), tile_rows};
}

// The key blocks of a query tile. Blocks [0, count) hold every visible key, blocks [0, unmasked)
// no hidden one. A tile that sees no key still gets one block, all hidden, to keep one code path.
struct KeyBlocks {
  int count;
  int unmasked;
};

__device__ __forceinline__ KeyBlocks key_blocks(int first_row, int last_row, int block_keys,
                                                int seqlen_k, int diagonal) {
  const int keys_of_first_row = min(seqlen_k, first_row + diagonal + 1);
  const int keys_of_last_row = min(seqlen_k, last_row + diagonal + 1);
  return {max(1, (keys_of_last_row + block_keys - 1) / block_keys),
          max(0, keys_of_first_row) / block_keys};
}

}  // namespace ffpa
