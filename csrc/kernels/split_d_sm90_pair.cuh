// split_d-sm90, a cluster of two CTAs for 128 query rows: for O too wide for one CTA's registers.
//
// Both CTAs hold Q, some boxes of its columns in registers. A step takes 128 keys: CTA c computes
// the scores of its 64 of them and owns half the columns of O, so that K and V come from L2 once
// for 128 rows and no product is done twice. What they tell each other, warpgroup to warpgroup of
// the same rows: the maxima of their scores, so that both take the same base, and P, as the
// fragments that wgmma takes from registers.
//
// K and V pass as pieces (split_d_sm90_pair_plan.cuh) in the order of use: K(j+1), then V(j) of the
// own keys and of the peer's. A step of a warpgroup:
//   S(j+1) = Q·K(j+1)ᵀ, piece by piece
//   O += own P(j)·V(j)                 | the tensor cores work behind the issue by a piece or two,
//   maxima of S(j+1) to the peer       | and a piece is given back when it is that old
//   O += peer's P(j)·V(j)              |
//   maxima of the peer, send P(j+1)    | beside the last of those products
//   drain, rescale O                   | the other warpgroup's products
// At D = 640 in F32 and 896 in F16 there are no registers for S(j+1) beside P(j): own P(j)·V(j)
// comes first there.
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "kernels/split_d_sm90_pair_consumer.cuh"
#include "kernels/split_d_sm90_pair_plan.cuh"
#include "kernels/split_d_sm90_pair_producer.cuh"
#include "launch.cuh"
#include "params.h"
#include "prim/cluster.cuh"
#include "prim/device.h"
#include "prim/elect.cuh"
#include "prim/setmaxnreg.cuh"
#include "prim/tensor_map.h"

namespace ffpa {

template <class Plan>
__global__ void __cluster_dims__(kPairCtas, 1, 1) __launch_bounds__(Plan::num_threads, 1)
    split_d_sm90_pair_kernel(const __grid_constant__ PairParams params) {
  extern __shared__ __align__(1024) uint8_t smem_bytes[];
  auto& smem = *reinterpret_cast<typename Plan::Smem*>(smem_bytes);
  const uint32_t rank = cluster_rank();

  if (threadIdx.x == 0) Plan::init_barriers(smem);
  if constexpr (Plan::kSplits) clear_missing_rows<Plan>(smem, params.problem.packed);
  cluster_sync();  // the peer may not send before the barriers are there

  // The shuffle tells the compiler that the role is the same for a whole warp.
  const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / kWarpgroupThreads, 0);
  if (warpgroup == Plan::kConsumers) {
    give_registers<Plan::kProducerRegisters>();
    const int warp = __shfl_sync(0xffffffff, threadIdx.x % kWarpgroupThreads / 32, 0);
    SplitDSm90PairProducer<Plan>{params, smem, rank, elect_one()}.run(warp);
  } else {
    take_registers<Plan::kConsumerRegisters>();
    SplitDSm90PairConsumer<Plan>{params, smem, warpgroup, rank}.run();
  }
  cluster_sync();  // the peer may still read or write this CTA's shared memory
}

template <SplitDSm90Config kConfig>
struct SplitDSm90Pair {
  using Plan = SplitDSm90PairPlan<kConfig>;
  static constexpr DType dtype = kConfig.dtype;
  static constexpr Acc acc = kConfig.acc;
  static constexpr int headdim = kConfig.headdim;
  static constexpr int Br = kConfig.Br;
  static constexpr int Bc = kConfig.Bc;
  static constexpr int num_threads = Plan::num_threads;
  static constexpr int smem_bytes = sizeof(typename Plan::Smem);

  static cudaError_t resident_clusters(int& count) {
    return num_resident_clusters(count, split_d_sm90_pair_kernel<Plan>, kPairCtas, num_threads,
                                 smem_bytes);
  }

  static cudaError_t launch(const ForwardParams& params, cudaStream_t stream) {
    PairParams pair;
    pair.problem = problem_of<typename Plan::QkSum>(params, Br);
    const TensorShape kv_shape{params.batch, params.nheads_kv, params.seqlen_k, params.headdim};
    cudaError_t status =
        make_query_map<Plan>(pair.q, pair.problem, params, kBoxColumns, Plan::kQBoxes);
    if (status != cudaSuccess) return status;
    status = make_query_map<Plan>(pair.q_piece, pair.problem, params, Plan::kQPieceColumns, 1);
    if (status != cudaSuccess) return status;
    status = make_piece_map(pair.k, dtype, params.k, kv_shape, params.k_strides, Plan::kKeys,
                            kBoxColumns, Plan::kKBoxes);
    if (status != cudaSuccess) return status;

    pair.owned_columns =
        std::min(Plan::kColumns, ceil_div(params.headdim_v, kPairCtas * kBoxColumns) * kBoxColumns);
    for (int rank = 0; rank < kPairCtas; ++rank) {
      status = make_column_maps(pair.columns[rank], params, kv_shape, rank * pair.owned_columns,
                                pair.owned_columns);
      if (status != cudaSuccess) return status;
    }

    int num_clusters;
    status = count_workers<Plan>(num_clusters, pair.problem, params, kPairCtas);
    if (status != cudaSuccess) return status;
    return launch_kernel(split_d_sm90_pair_kernel<Plan>, dim3(kPairCtas * num_clusters),
                         num_threads, smem_bytes, stream, pair);
  }

 private:
  static cudaError_t make_column_maps(PairColumns& maps, const ForwardParams& params,
                                      const TensorShape& kv_shape, int first, int owned) {
    // What lies beyond a short headdim_v works on other columns and stores nothing.
    if (first >= params.headdim_v) first = 0;
    const int columns = std::min(params.headdim_v - first, owned);
    TensorShape shape = kv_shape;
    shape.columns = std::min(columns, Plan::kVColumns);
    cudaError_t status =
        make_piece_map(maps.v, dtype, element_at(params.v, first), shape, params.v_strides,
                       16 * Plan::kPieceSteps, Plan::kVBoxColumns, Plan::kVBoxes);
    if (status != cudaSuccess) return status;

    if constexpr (Plan::kSideColumns > 0) {
      const bool has_side = columns > Plan::kVColumns;
      shape.columns = has_side ? columns - Plan::kVColumns : std::min(columns, Plan::kSideColumns);
      status = make_piece_map(
          maps.v_side, dtype, element_at(params.v, has_side ? first + Plan::kVColumns : first),
          shape, params.v_strides, Plan::kSideKeys, Plan::kSideBoxColumns, Plan::kSideBoxes);
      if (status != cudaSuccess) return status;
    }
    return cudaSuccess;
  }
};

}  // namespace ffpa
