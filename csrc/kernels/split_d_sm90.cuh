// split_d on Hopper: TMA, mbarriers, wgmma and warp specialisation; exact attention, D = 64 to 512.
//
// Two structures share prim/ and tile/:
//   solo (split_d_sm90_solo.cuh)  one CTA has Br query rows and all of O; up to D = 256 or so
//   pair (split_d_sm90_pair.cuh)  a cluster of two CTAs has 128 query rows; each computes the
//   scores
//                                 of half the keys and owns half the columns of O
// The registers decide: O in F32 takes D / 2 of a thread's 240 at 64 rows a warpgroup.
#pragma once

#include <type_traits>

#include "kernels/split_d_sm90_common.cuh"
#include "kernels/split_d_sm90_pair.cuh"
#include "kernels/split_d_sm90_solo.cuh"

namespace ffpa {

template <SplitDSm90Config kConfig>
struct SplitDSm90
    : std::conditional_t<kConfig.ctas == 1, SplitDSm90Solo<kConfig>, SplitDSm90Pair<kConfig>> {};

}  // namespace ffpa
