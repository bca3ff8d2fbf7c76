// ladder-4-swizzle: as step 3, with tiles that lie swizzled in shared memory.
//
// Idea       Chunk c of row r lies at c ^ (r % 8) of a 128-byte row (prim/swizzle.cuh): what
//            ldmatrix reads at a time is spread over all banks, as slices of 16 columns were over
//            half of them. Only the type of the panels changes, and the tile: 128 keys.
//
// Expected   Half of the time of every read: up to twice the speed. Now that reads are not all that
//            counts, a tile of twice as many keys rescales O half as often, for the third CTA of an
//            SM.
//
// Brought    More than nine tenths of FlashAttention-2's rate (4 % less with 64 keys): the largest
//            step of the ladder.
//
// Limit      Still shared memory: at 16 rows a warp each byte read feeds 16 operations.
#pragma once

#include "kernels/ladder/ladder_3_eager_loads.cuh"

namespace ffpa {

template <LadderConfig kConfig>
struct Ladder4Swizzle : Ladder3EagerLoads<kConfig, SwizzledPanel> {};

using Ladder4SwizzleConfig = LadderConfig;

}  // namespace ffpa
