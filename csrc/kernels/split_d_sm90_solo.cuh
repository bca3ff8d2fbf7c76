// split_d-sm90, one CTA on its own: Br query rows, a producer warpgroup and one consumer warpgroup
// for every 64 of the rows, each with its rows of S, P and O in registers.
//
// K and V pass block by block (Bc keys × D) through one ring, in the order of use:
//   K0, K1 V0, K2 V1, ... so that the products of step j are S(j+1) = Q·K(j+1)ᵀ and O += P(j)·V(j).
// A step of a consumer, and what the tensor cores do meanwhile:
//   issue S(j+1), issue PV(j)                     | S(j+1)
//   wait S(j+1), give back K(j+1)                 |
//   softmax of S(j+1)                             | PV(j)
//   wait PV(j), give back V(j), rescale O, pack P | the other warpgroup's products
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

#include "kernels/split_d_sm90_solo_consumer.cuh"
#include "kernels/split_d_sm90_solo_plan.cuh"
#include "kernels/split_d_sm90_solo_producer.cuh"
#include "launch.cuh"
#include "params.h"
#include "prim/elect.cuh"
#include "prim/setmaxnreg.cuh"
#include "prim/tensor_map.h"

namespace ffpa {

template <class Plan>
__global__ void __launch_bounds__(Plan::num_threads, 1)
    split_d_sm90_solo_kernel(const __grid_constant__ SoloParams params) {
  extern __shared__ __align__(1024) uint8_t smem_bytes[];
  auto& smem = *reinterpret_cast<typename Plan::Smem*>(smem_bytes);

  if (threadIdx.x == 0) Plan::init_barriers(smem);
  if constexpr (Plan::kSplits) clear_missing_rows<Plan>(smem, params.problem.packed);
  __syncthreads();

  // The shuffle tells the compiler that the role is the same for a whole warp.
  const int warpgroup = __shfl_sync(0xffffffff, threadIdx.x / kWarpgroupThreads, 0);
  if (warpgroup == Plan::kConsumers) {
    give_registers<Plan::kProducerRegisters>();
    const int warp = __shfl_sync(0xffffffff, threadIdx.x % kWarpgroupThreads / 32, 0);
    SplitDSm90SoloProducer<Plan>{params, smem, elect_one()}.run(warp);
  } else {
    take_registers<Plan::kConsumerRegisters>();
    SplitDSm90SoloConsumer<Plan>{params, smem, warpgroup}.run();
  }
}

template <SplitDSm90Config kConfig>
struct SplitDSm90Solo {
  using Plan = SplitDSm90SoloPlan<kConfig>;
  static constexpr DType dtype = kConfig.dtype;
  static constexpr Acc acc = kConfig.acc;
  static constexpr int headdim = kConfig.headdim;
  static constexpr int Br = kConfig.Br;
  static constexpr int Bc = kConfig.Bc;
  static constexpr int num_threads = Plan::num_threads;
  static constexpr int smem_bytes = sizeof(typename Plan::Smem);

  static cudaError_t launch(const ForwardParams& params, cudaStream_t stream) {
    SoloParams solo;
    solo.problem = problem_of<typename Plan::QkSum>(params, Br);
    const TensorShape k_shape{params.batch, params.nheads_kv, params.seqlen_k, params.headdim};
    const TensorShape v_shape{params.batch, params.nheads_kv, params.seqlen_k, params.headdim_v};
    cudaError_t status =
        make_query_map<Plan>(solo.q, solo.problem, params, kBoxColumns, Plan::kBoxes);
    if (status != cudaSuccess) return status;
    const struct {
      PieceMap& map;
      const void* data;
      const TensorShape& shape;
      const Strides& strides;
    } inputs[] = {{solo.k, params.k, k_shape, params.k_strides},
                  {solo.v, params.v, v_shape, params.v_strides}};
    for (const auto& [map, data, shape, strides] : inputs) {
      status = make_piece_map(map, dtype, data, shape, strides, Bc, kBoxColumns, Plan::kBoxes);
      if (status != cudaSuccess) return status;
    }

    int num_ctas;
    status = count_workers<Plan>(num_ctas, solo.problem, params, 1);
    if (status != cudaSuccess) return status;
    return launch_kernel(split_d_sm90_solo_kernel<Plan>, dim3(num_ctas), num_threads, smem_bytes,
                         stream, solo);
  }
};

}  // namespace ffpa
