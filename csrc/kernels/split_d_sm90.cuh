// split_d on Hopper: TMA, mbarriers, wgmma and warp specialisation; exact attention, D = 64 to
// 1024.
//
// Three structures share prim/ and tile/:
//   solo     one CTA has Br query rows and all of O; up to D = 320
//   pair     a cluster of two CTAs has 128 query rows; each CTA computes the scores of half the
//            keys and owns half the columns of O; as long as Q and O of 128 rows fit: up to
//            D = 640 with O in F32, 896 in F16
//   quartet  the four warpgroups of such a cluster share 64 rows; each computes the scores of a
//            quarter of the keys and owns a quarter of the columns of O; above
// The registers decide: O in F32 takes D / 2 of a thread's 240 at 64 rows a warpgroup.
//
// For few queries and many keys there are instances that split the keys: the tiles have the rows of
// all heads that share a key head (tile/packed_order.cuh), each split of a tile's keys is the work
// of one CTA or cluster, and a second kernel (merge_splits.cuh) adds the splits up.
#pragma once

#include <type_traits>

#include "kernels/merge_splits.cuh"
#include "kernels/split_d_sm90_common.cuh"
#include "kernels/split_d_sm90_pair.cuh"
#include "kernels/split_d_sm90_quartet.cuh"
#include "kernels/split_d_sm90_solo.cuh"

namespace ffpa {

template <SplitDSm90Config kConfig>
using SplitDSm90Cluster = std::conditional_t<kConfig.Br == kWarpgroupRows,
                                             SplitDSm90Quartet<kConfig>, SplitDSm90Pair<kConfig>>;

template <SplitDSm90Config kConfig>
using SplitDSm90Structure =
    std::conditional_t<kConfig.ctas == 1, SplitDSm90Solo<kConfig>, SplitDSm90Cluster<kConfig>>;

template <SplitDSm90Config kConfig>
struct SplitDSm90 : SplitDSm90Structure<kConfig> {
  static constexpr int ctas = kConfig.ctas;
  static_assert(!kConfig.splits || kConfig.acc == Acc::f32, "splits are merged in F32");

  static cudaError_t launch(const ForwardParams& params, cudaStream_t stream) {
    const cudaError_t status = SplitDSm90Structure<kConfig>::launch(params, stream);
    if constexpr (kConfig.splits) {
      if (status == cudaSuccess && params.splits > 1) {
        return launch_merge<SplitDSm90>(params, stream);
      }
    }
    return status;
  }
};

}  // namespace ffpa
