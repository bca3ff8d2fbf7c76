// split_d-sm90, a cluster of two CTAs for 64 query rows: for O and Q too wide for the pair.
//
// The four consumer warpgroups, the members, share the rows. Both CTAs hold Q, each member some
// boxes of its columns in registers. A step takes 256 keys: each member computes the scores of its
// 64 of them and owns a quarter of the columns of O. Every byte of K and V is used by one member
// only, so that each has a ring of its own. They tell each other the maxima of their scores, so
// that all take the same base, and P, as the fragments that wgmma takes from registers.
//
// K and V pass as pieces, 64 keys × 64 columns of K and 16 keys × this member's columns of V, in
// the order of use. A step of a member:
//   S(j+1) = Q·K(j+1)ᵀ, piece by piece
//   O += own P(j)·V(j), 4 pieces        | the tensor cores work behind the issue
//   maxima of S(j+1) to the others      |
//   O += the others' P(j)·V(j), 12      |
//   maxima of the others, P(j+1)        |
//   drain, send P(j+1), rescale O       | the other member's products
#pragma once

#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>

#include "kernels/split_d_sm90_quartet_consumer.cuh"
#include "kernels/split_d_sm90_quartet_plan.cuh"
#include "kernels/split_d_sm90_quartet_producer.cuh"
#include "launch.cuh"
#include "params.h"
#include "prim/cluster.cuh"
#include "prim/device.h"
#include "prim/elect.cuh"
#include "prim/setmaxnreg.cuh"
#include "prim/tensor_map.h"

namespace ffpa {

template <class Plan>
__global__ void __cluster_dims__(kQuartetCtas, 1, 1) __launch_bounds__(Plan::num_threads, 1)
    split_d_sm90_quartet_kernel(const __grid_constant__ QuartetParams params) {
  extern __shared__ __align__(1024) uint8_t smem_bytes[];
  auto& smem = *reinterpret_cast<typename Plan::Smem*>(smem_bytes);
  const uint32_t rank = cluster_rank();

  if (threadIdx.x == 0) Plan::init_barriers(smem);
  if constexpr (Plan::kSplits) clear_missing_rows<Plan>(smem, params.problem.packed);
  cluster_sync();  // the others may not send before the barriers are there

  // The shuffle tells the compiler that the role is the same for a whole warp.
  const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / kWarpgroupThreads, 0);
  if (warpgroup == Plan::kConsumers) {
    give_registers<Plan::kProducerRegisters>();
    const int warp = __shfl_sync(0xffffffff, threadIdx.x % kWarpgroupThreads / 32, 0);
    SplitDSm90QuartetProducer<Plan>{params, smem, rank, elect_one()}.run(warp);
  } else {
    take_registers<Plan::kConsumerRegisters>();
    const int member = rank * Plan::kConsumers + warpgroup;
    SplitDSm90QuartetConsumer<Plan>{params, smem, warpgroup, member}.run();
  }
  cluster_sync();  // the others may still read or write this CTA's shared memory
}

template <SplitDSm90Config kConfig>
struct SplitDSm90Quartet {
  using Plan = SplitDSm90QuartetPlan<kConfig>;
  static constexpr DType dtype = kConfig.dtype;
  static constexpr Acc acc = kConfig.acc;
  static constexpr int headdim = kConfig.headdim;
  static constexpr int Br = kConfig.Br;
  static constexpr int Bc = kConfig.Bc;
  static constexpr int num_threads = Plan::num_threads;
  static constexpr int smem_bytes = sizeof(typename Plan::Smem);

  static cudaError_t resident_clusters(int& count) {
    return num_resident_clusters(count, split_d_sm90_quartet_kernel<Plan>, kQuartetCtas,
                                 num_threads, smem_bytes);
  }

  static cudaError_t launch(const ForwardParams& params, cudaStream_t stream) {
    QuartetParams quartet;
    quartet.problem = problem_of<typename Plan::QkSum>(params, Br);
    const TensorShape kv_shape{params.batch, params.nheads_kv, params.seqlen_k, params.headdim};
    cudaError_t status =
        make_query_map<Plan>(quartet.q, quartet.problem, params, kBoxColumns, Plan::kQBoxes);
    if (status != cudaSuccess) return status;
    status = make_query_map<Plan>(quartet.q_piece, quartet.problem, params, kBoxColumns, 1);
    if (status != cudaSuccess) return status;
    status = make_piece_map(quartet.k, dtype, params.k, kv_shape, params.k_strides, Plan::kKeys,
                            kBoxColumns, 1);
    if (status != cudaSuccess) return status;

    for (int member = 0; member < kQuartetMembers; ++member) {
      // A member whose columns lie beyond a short headdim_v works on others and stores nothing.
      const int first = member * Plan::kColumns < params.headdim_v ? member * Plan::kColumns : 0;
      const int columns = std::clamp(params.headdim_v - first, 8, Plan::kColumns);
      TensorShape shape = kv_shape;
      shape.columns = columns;
      status = make_piece_map(quartet.v[member], dtype, element_at(params.v, first), shape,
                              params.v_strides, Plan::kPieceKeys, kBoxColumns, Plan::kVBoxes);
      if (status != cudaSuccess) return status;
    }

    int num_clusters;
    status = count_workers<Plan>(num_clusters, quartet.problem, params, kQuartetCtas);
    if (status != cudaSuccess) return status;
    return launch_kernel(split_d_sm90_quartet_kernel<Plan>, dim3(kQuartetCtas * num_clusters),
                         num_threads, smem_bytes, stream, quartet);
  }
};

}  // namespace ffpa
