// ladder-8-large-tile: step 7 with 128 rows and 8 warps a CTA.
//
// Idea       Each tile of K and V is fetched from L2 for twice as many rows. Only the configuration
//            changes.
//
// Expected   Half of the traffic from L2.
//
// Brought    A loss of a fifth: three quarters of FlashAttention-2's rate, and a little more at
//            N = 8192. Q, O and S of 16 rows take so many registers that one such CTA fills an SM:
//            8 warps instead of 12, and all wait at the same barriers.
//
// Limit      Latency; and shared memory as before, since a warp still has 16 rows.
#pragma once

#include "kernels/ladder/ladder_7_softmax.cuh"

namespace ffpa {

template <LadderConfig kConfig>
struct Ladder8LargeTile : Ladder7Softmax<kConfig> {};

using Ladder8LargeTileConfig = LadderConfig;

}  // namespace ffpa
