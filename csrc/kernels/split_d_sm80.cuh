// split_d-sm80: attention tiled over D at the level of one MMA instruction.
//
// A CTA owns Br query rows and walks the keys in tiles of Bc. K and V never lie in shared memory
// whole: they stream through one ring of equal slots in slices, K as Bc keys x Bd columns, V as Bk
// keys x Bv columns, so that the ring does not grow with D.
//
// The warps form a grid of warps_m x warps_n. Row m of it owns Br / warps_m query rows. Its warps
// share them: for S = QKᵀ each takes Bc / warps_n of the keys, over all of D; for O = PV each takes
// 64 / warps_n columns of every panel of 64, over all keys. In between, row maxima and P pass
// through shared memory; with warps_n = 1 P stays in registers. More rows per warp mean fewer reads
// of K and V per product, and shared memory is what this kernel would run short of first.
//
// Registers per thread, with R = Br / (16 warps_m) row tiles per warp:
//   O   R headdim / (2 warps_n), half of it where PV is stored in F16
//   S   R Bc / (2 warps_n); F16 halves it during QKᵀ, but the softmax widens it; f16f32 has half as
//       much again for the chains
//   P   R Bk / 4 (R Bc / 4 with warps_n = 1), when S is gone
//   4 R + 8 for the operands of an MMA step, 4 R for row state, about 40 for addresses and the ring
//   R headdim / 4 for Q with q_in = registers; with fragment_sets = 2 the operands twice
// Shared memory: Q (Br x headdim; with q_in = streamed one slice of it per slot), P (Br x Bc, if
// warps_n > 1), and stages slots of max(Bc Bd, Bk Bv) elements, or with stages_v two rings, stages
// slots of Bc Bd and stages_v of Bk Bv.
//
// F16 sums overflow where Q K, Q taken times a power of two near scale log2(e), or a chain of P V,
// Bk keys, leaves +-65504: for equal weights where |V| > 65504 / Bk. O itself, kept divided by a
// power of two, is good for |V| up to 2047 whatever N is. It stalls where Bk keys weigh less than
// half a unit in its last place: 2^11 Bk keys of equal weight.
#pragma once

#include <cuda_runtime.h>

#include <type_traits>

#include "kernels/split_d_sm80_epilogue.cuh"
#include "kernels/split_d_sm80_loader.cuh"
#include "kernels/split_d_sm80_plan.cuh"
#include "kernels/split_d_sm80_products.cuh"
#include "launch.cuh"
#include "tile/row_exchange.cuh"
#include "tile/score_mask.cuh"
#include "tile/tile_order.cuh"

namespace ffpa {

template <SplitDSm80Config kConfig>
class SplitDSm80Cta {
  using Plan = SplitDSm80Plan<kConfig>;
  using Lane = SplitDSm80Lane<kConfig>;
  using Element = typename Plan::Element;
  using PanelQ = typename Plan::PanelQ;
  using Rings = SliceRings<kConfig>;
  using Rows = PerRow<Plan::kRowTiles>;
  using Scores = ffpa::Scores<Plan::kRowTiles, Plan::kScoreTiles>;

 public:
  static constexpr int kThreads = Plan::kThreads;
  static constexpr int kCtasPerSm = kConfig.ctas_per_sm;

  __device__ __forceinline__ SplitDSm80Cta(const ForwardParams& params, unsigned char* smem)
      : params_(params),
        rows_(params, kConfig.Br),
        row_group_{reinterpret_cast<float*>(smem + Plan::kBarrierBytes) +
                       Lane::warp_m() * Plan::kWarpRows * Plan::kWarpsN,
                   1 + Lane::warp_m()},
        smem_(smem),
        my_a_(pin(shared_address(smem) + Lane::offset_a())),
        my_k_(Lane::offset_k()),
        my_v_(pin(Lane::offset_v())) {}

  __device__ __forceinline__ void run() {
    const int last_row = min(rows_.first_row + kConfig.Br, params_.seqlen_q) - 1;
    const KeyBlocks blocks =
        key_blocks(rows_.first_row, last_row, kConfig.Bc, params_.seqlen_k, params_.diagonal);
    Rings rings(params_, rows_, blocks.count, smem_);
    if (threadIdx.x == 0) rings.init();
    __syncthreads();
    const float scale_log2 = prepare_q(rings);

    softmax_.reset();
    clear(out_);
#pragma unroll 1
    for (int block = 0; block < blocks.count; ++block) {
      Scores scores;
      compute_scores(scores, rings.k());
      const int first_key = block * kConfig.Bc;
      const float exponent_scale = put_mask_on(scores, scale_log2, first_key);
      if (block >= blocks.unmasked) {
        mask<Plan::kRowTiles, Plan::kScoreTiles>(
            scores, rows_.first_row + Lane::row(),
            first_key + Lane::warp_n() * Plan::kWarpKeys + Lane::column(), params_.seqlen_k,
            params_.diagonal);
      }
      if (move_base(scores, exponent_scale, first_key + kConfig.Bc)) {
        scale_scores<Plan::kRowTiles, Plan::kScoreTiles>(scores, exponent_scale);
        softmax_.exponentiate(scores, 1.0f);
      } else {
        softmax_.exponentiate(scores, exponent_scale);
      }
      add_values(scores, rings.v());
    }

    for (auto& row_tile : softmax_.sum) {
      for (float& sum : row_tile)
        sum = reduce_quad(sum, Plus());
    }
    row_group_.reduce(softmax_.sum, Lane::warp_n(), Plus());
    store_rows<kConfig>(params_, out_, softmax_.base, softmax_.sum, ldexpf(1.0f, out_exponent_));
  }

 private:
  // O is kept divided by 2^exponent, so that F16 holds it however many keys it sums.
  static __device__ __forceinline__ int out_exponent(int num_keys) {
    return Plan::kF16Out ? max(0, 32 - __clz(num_keys - 1) - 5) : 0;
  }

  template <class Tiles>
  static __device__ __forceinline__ void clear(Tiles& tiles) {
    if constexpr (std::is_array_v<Tiles>) {
#pragma unroll
      for (auto& part : tiles)
        clear(part);
    } else {
      tiles.clear();
    }
  }

  // Fetches Q if it stays, starts the rings, and returns the factor from scores to exponents of 2.
  // F16 scores could overflow before that factor shrinks them, so Q takes its power of two first.
  __device__ __forceinline__ float prepare_q(Rings& rings) {
    using Passes = typename Plan::PassesQ;
    unsigned char* my_q = smem_ + Plan::kOffsetQ + Passes::my_offset();
    if constexpr (!Plan::kStreamsQ) {
      const int row = rows_.first_row + Passes::my_row();
      copy_panels<Passes>(shared_address(my_q),
                          static_cast<const Element*>(params_.q) + Passes::my_column() +
                              CtaRows::offset(params_.q_strides, rows_.batch, rows_.head, row),
                          params_.q_strides.row, params_.seqlen_q - row,
                          params_.headdim - Passes::my_column());
      cp_async_wait_all();
    }
    rings.prime();
    float scale_log2 = params_.scale_log2;
    if constexpr (Plan::kF16Scores) {
      const int exponent = min(max(ilogbf(scale_log2), -14), 0);
      scale_log2 = ldexpf(scale_log2, -exponent);
      const __half2 factor = __float2half2_rn(ldexpf(1.0f, exponent));
      Passes::for_my_chunks([&](int panel, int row) {
        auto* pairs =
            reinterpret_cast<__half2*>(my_q + panel * PanelQ::kBytes + row * PanelQ::kPitch);
#pragma unroll
        for (int i = 0; i < 4; ++i)
          pairs[i] = __hmul2(pairs[i], factor);
      });
    }
    __syncthreads();
    if constexpr (kConfig.q_in == QPlace::registers) {
#pragma unroll
      for (int step = 0; step < kConfig.headdim / 16; ++step)
        load_q<kConfig>(my_a_ + Plan::kOffsetQ, step, q_.steps[step]);
    }
    return scale_log2;
  }

  // S = Q Kᵀ of one tile of keys.
  template <class Ring>
  __device__ __forceinline__ void compute_scores(Scores& scores, Ring& ring) {
    typename Plan::ScoreSums sums;
    clear(sums);
#pragma unroll 1
    for (int slice = 0; slice < Plan::kPanels / Plan::kPanelsK; ++slice) {
      add_scores<Plan::kPanelsK>(sums, slice, ring);
    }
    if constexpr (Plan::kPanels % Plan::kPanelsK != 0) {
      add_scores<Plan::kPanels % Plan::kPanelsK>(sums, Plan::kSlicesK - 1, ring);
    }
#pragma unroll
    for (int r = 0; r < Plan::kRowTiles; ++r) {
#pragma unroll
      for (int n = 0; n < Plan::kScoreTiles; ++n) {
#pragma unroll
        for (int h = 0; h < 2; ++h) {
          const float2 pair = sums[r][n].row(h);
          scores[r][n][h][0] = pair.x;
          scores[r][n][h][1] = pair.y;
        }
      }
    }
  }

  template <int kNumPanels, class Ring>
  __device__ __forceinline__ void add_scores(typename Plan::ScoreSums& sums, int slice,
                                             Ring& ring) {
    const uint32_t slot = ring.acquire();
    const auto prefetch = [&] { ring.refill(); };
    if constexpr (kConfig.q_in == QPlace::registers) {
      multiply_qk<kConfig, kNumPanels>(sums, q_, slot + my_k_, prefetch);
    } else {
      const uint32_t q = Plan::kStreamsQ
                             ? my_a_ - shared_address(smem_) + slot + Plan::kSliceBytesK
                             : my_a_ + Plan::kOffsetQ + slice * Plan::kPanelsK * PanelQ::kBytes;
      multiply_qk<kConfig, kNumPanels>(sums, stream_q<kConfig, kNumPanels>(q), slot + my_k_,
                                       prefetch);
    }
    ring.release();
  }

  // Adds attn_mask, which makes exponents of scores; returns the factor that is left to get there.
  __device__ __forceinline__ float put_mask_on(Scores& scores, float scale_log2,
                                               int first_key) const {
    if constexpr (kConfig.masks) {
      const ScoreMask& mask = params_.mask;
      if (mask.kind != ScoreMask::none) {
        const int64_t head = rows_.batch * mask.batch + rows_.head * mask.head;
        add_mask<Element, Plan::kRowTiles, Plan::kScoreTiles>(
            scores, scale_log2, mask, first_key + Lane::warp_n() * Plan::kWarpKeys + Lane::column(),
            params_.seqlen_k, [&](int r, int h) {
              const int row = rows_.first_row + Lane::row() + 16 * r + 8 * h;
              return row < params_.seqlen_q ? head + row * mask.row : int64_t{-1};
            });
        return 1.0f;
      }
    }
    return scale_log2;
  }

  // Moves the bases up to a tile's scores and O with them; num_keys counts to the tile's end. False
  // if all stay.
  __device__ __forceinline__ bool move_base(const Scores& scores, float scale_log2, int num_keys) {
    Rows factor;
    row_maxima<Plan::kRowTiles, Plan::kScoreTiles>(scores, factor);
    row_group_.reduce(factor, Lane::warp_n(), Max());
    const bool moves = softmax_.move_base(factor, scale_log2, factor);
    const int shift = out_exponent(num_keys) - out_exponent_;
    if (!moves && shift == 0) return false;
    out_exponent_ += shift;
#pragma unroll
    for (int r = 0; r < Plan::kRowTiles; ++r) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float row_factor = factor[r][h] * power_of_two(-shift);
#pragma unroll
        for (int panel = 0; panel < Plan::kPanels; ++panel) {
#pragma unroll
          for (int n = 0; n < Plan::kPanelTiles; ++n)
            out_[panel][r][n].scale_row(h, row_factor);
        }
      }
    }
    return true;
  }

  // O += P V of one tile of keys.
  template <class Ring>
  __device__ __forceinline__ void add_values(const Scores& weights, Ring& ring) {
    constexpr int kBlockSteps = kConfig.Bk / 16;
    const float chain_scale = power_of_two(-out_exponent_);
    typename Plan::FragmentsP p;
    if constexpr (Plan::kWarpsN == 1) {
      pack_weights<kConfig>(weights, p);
#pragma unroll
      for (int block = 0; block < Plan::kKeyBlocks; ++block) {
        add_block<0>(p, block * kBlockSteps, chain_scale, ring);
      }
    } else {
      store_weights<kConfig>(weights, smem_ + Plan::kOffsetP);
      row_group_.sync();
#pragma unroll 1
      for (int block = 0; block < Plan::kKeyBlocks; ++block) {
        load_weights<kConfig>(my_a_ + Plan::kOffsetP, block * kBlockSteps, p);
        add_block<0>(p, 0, chain_scale, ring);
      }
    }
  }

  // The slices of V of one key block, from slice kSlice on.
  template <int kSlice, class Ring>
  __device__ __forceinline__ void add_block(const typename Plan::FragmentsP& p, int first_step,
                                            float chain_scale, Ring& ring) {
    if constexpr (kSlice < Plan::kSlicesV) {
      constexpr int kFirstPanel = kSlice * Plan::kPanelsV;
      constexpr int kLeft = Plan::kPanels - kFirstPanel;
      constexpr int kNumPanels = kLeft < Plan::kPanelsV ? kLeft : Plan::kPanelsV;
      const uint32_t slot = ring.acquire();
      multiply_pv<kConfig, kFirstPanel, kNumPanels>(out_, p, first_step, slot + my_v_, chain_scale,
                                                    [&] { ring.refill(); });
      ring.release();
      add_block<kSlice + 1>(p, first_step, chain_scale, ring);
    }
  }

  const ForwardParams& params_;
  CtaRows rows_;
  RowExchange<Plan::kRowTiles, Plan::kWarpsN> row_group_;
  unsigned char* smem_;
  uint32_t
      my_a_;  // this lane's row for ldmatrix: of the A operand from the start of shared memory,
  uint32_t my_k_;  // of K and V from the start of a slot
  uint32_t my_v_;
  typename Plan::Softmax softmax_;
  typename Plan::OutSums out_;
  typename Plan::FragmentsQ q_;  // with q_in = registers
  int out_exponent_ = 0;
};

template <class Cta>
__global__ void __launch_bounds__(Cta::kThreads, Cta::kCtasPerSm)
    split_d_sm80_kernel(const __grid_constant__ ForwardParams params) {
  extern __shared__ __align__(128) unsigned char smem[];
  Cta(params, smem).run();
}

template <SplitDSm80Config kConfig>
struct SplitDSm80 {
  using Plan = SplitDSm80Plan<kConfig>;
  static constexpr DType dtype = kConfig.dtype;
  static constexpr Acc acc = kConfig.acc;
  static constexpr int headdim = kConfig.headdim;
  static constexpr int Br = kConfig.Br;
  static constexpr int Bc = kConfig.Bc;
  static constexpr int num_threads = Plan::kThreads;
  static constexpr int smem_bytes = Plan::kSmemBytes;

  static cudaError_t launch(const ForwardParams& params, cudaStream_t stream) {
    const int64_t ctas =
        int64_t{params.batch} * params.nheads_q * ceil_div(params.seqlen_q, kConfig.Br);
    if (ctas > INT32_MAX) return cudaErrorInvalidConfiguration;
    return launch_kernel(split_d_sm80_kernel<SplitDSm80Cta<kConfig>>,
                         dim3(static_cast<unsigned>(ctas)), num_threads, smem_bytes, stream,
                         params);
  }
};

}  // namespace ffpa
