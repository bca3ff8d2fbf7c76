// Query tiles for few queries and many keys: the rows of a tile are those of several heads over one
// key head, and its keys are cut into splits, each a tile of its own.
#pragma once

#include <algorithm>
#include <cstdint>

#include "config.cuh"
#include "params.h"
#include "tile/tile_order.cuh"

namespace ffpa {

// Where a row of a tile belongs.
struct PackedRow {
  int head;  // of the query
  int query;
  bool exists;
};

// Row r of a tile is query r % queries of its head r / queries. Heads are not cut, so that any
// strides will do: a box of the tile is so many rows of so many heads.
struct PackedOrder {
  int queries;          // of each head in a tile
  int heads;            // of a tile
  int tiles_per_head;   // along the queries
  int tiles_per_group;  // along the heads that share a key head
  int heads_per_group;  // so many do
  int nheads_kv;
  int batch;
  int splits;

  __host__ __device__ int rows() const { return queries * heads; }

  __host__ __device__ int64_t num_tiles() const {
    return int64_t{tiles_per_head} * tiles_per_group * splits * nheads_kv * batch;
  }

  // Those that read the same keys are neighbours: they find them in L2.
  __device__ __forceinline__ QueryTile tile(int index) const {
    const int row_tile = index % tiles_per_head;
    index /= tiles_per_head;
    const int of_group = index % tiles_per_group;
    index /= tiles_per_group;
    const int split = index % splits;
    index /= splits;
    const int kv_head = index % nheads_kv;
    return {row_tile * queries, kv_head * heads_per_group + of_group * heads, index / nheads_kv,
            split};
  }

  __device__ __forceinline__ int query(const QueryTile& tile, int row) const {
    return tile.first_row + row % queries;
  }

  __device__ __forceinline__ PackedRow place(const QueryTile& tile, int row, int seqlen_q) const {
    const int of_tile = row / queries;
    const bool in_group = tile.head % heads_per_group + of_tile < heads_per_group;
    const int query = this->query(tile, row);
    return {tile.head + of_tile, query, of_tile < heads && in_group && query < seqlen_q};
  }
};

// All of them, where keys are not split; a constant leaves no trace in the machine code.
struct AllKeys {
  static constexpr int first = 0;
  int end;
  int unmasked;
};

// The key blocks of a split: [first, end), of which those before `unmasked` hide no key from any
// row. One that gets none takes the block after the tile's last, all hidden.
struct KeyRange {
  int first;
  int end;
  int unmasked;
};

__device__ __forceinline__ KeyRange key_range(const KeyBlocks& blocks, int split, int splits) {
  const int first = static_cast<int>(int64_t{blocks.count} * split / splits);
  const int end = static_cast<int>(int64_t{blocks.count} * (split + 1) / splits);
  if (first == end) return {blocks.count, blocks.count + 1, blocks.unmasked};
  return {first, end, blocks.unmasked};
}

inline PackedOrder packed_order(const ForwardParams& params, int tile_rows) {
  const int queries = std::min(params.seqlen_q, tile_rows);
  const int group = params.nheads_q / params.nheads_kv;
  const int heads = std::min(tile_rows / queries, group);
  return {queries,
          heads,
          ceil_div(params.seqlen_q, queries),
          ceil_div(group, heads),
          group,
          params.nheads_kv,
          params.batch,
          params.splits};
}

}  // namespace ffpa
