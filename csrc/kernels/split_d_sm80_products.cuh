// The two products of split_d-sm80, one slice of K or V at a time, by one warp.
#pragma once

#include "kernels/split_d_sm80_plan.cuh"
#include "prim/ldmatrix.cuh"

namespace ffpa {

// The A operand of one MMA step of QKᵀ; `q` is this lane's address in the panels.
template <SplitDSm80Config kConfig>
__device__ __forceinline__ void load_q(uint32_t q, int step,
                                       uint32_t (&a)[SplitDSm80Plan<kConfig>::kRowTiles][4]) {
  using Panel = typename SplitDSm80Plan<kConfig>::PanelQ;
  const uint32_t address = Panel::advance(q, 2 * (step % 4)) + step / 4 * Panel::kBytes;
#pragma unroll
  for (int r = 0; r < SplitDSm80Plan<kConfig>::kRowTiles; ++r)
    ldmatrix_x4(a[r], address + 16 * r * Panel::kPitch);
}

// Those of all steps of a slice, from shared memory.
template <SplitDSm80Config kConfig, int kNumPanels>
__device__ __forceinline__ auto stream_q(uint32_t q) {
  return stream_fragments<kConfig.fragment_sets, 4 * kNumPanels,
                          SplitDSm80Plan<kConfig>::kRowTiles>(
      [q](int step, auto& a) { load_q<kConfig>(q, step, a); });
}

// S += Q Kᵀ over one slice of columns, kNumPanels panels. `q` hands out the A operand, `k` is this
// lane's address in the slice. `prefetch` is called once, where the tensor cores have work to go on
// with.
template <SplitDSm80Config kConfig, int kNumPanels, class FragmentsQ, class Prefetch>
__device__ __forceinline__ void multiply_qk(typename SplitDSm80Plan<kConfig>::ScoreSums& scores,
                                            FragmentsQ&& q, uint32_t k, const Prefetch& prefetch) {
  using Plan = SplitDSm80Plan<kConfig>;
  using Chain = typename Plan::Qk::Chain;
  using PanelK = typename Plan::PanelK;
  constexpr int kSteps = 4 * kNumPanels;
  constexpr int kLoads = Plan::kScoreTiles / 2;  // of K, per step

  auto fragments_k =
      stream_fragments<kConfig.fragment_sets, kSteps * kLoads, 1>([k](int load, auto& b) {
        const int step = load / kLoads;
        ldmatrix_x4(b[0], PanelK::advance(k, 2 * (step % 4)) + step / 4 * PanelK::kBytes +
                              16 * (load % kLoads) * PanelK::kPitch);
      });
  const auto multiply = [&](Tile16x8<Chain>(&sums)[Plan::kRowTiles][Plan::kScoreTiles]) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const auto& a = q.next(step);
#pragma unroll
      for (int i = 0; i < kLoads; ++i) {
        const auto& b = fragments_k.next(step * kLoads + i)[0];
#pragma unroll
        for (int r = 0; r < Plan::kRowTiles; ++r) {
          mma<typename Plan::Element>(sums[r][2 * i], a[r], b[0], b[1]);
          mma<typename Plan::Element>(sums[r][2 * i + 1], a[r], b[2], b[3]);
        }
      }
      if (step == 0) prefetch();
    }
  };

  if constexpr (Plan::Qk::kChained) {
    Tile16x8<Chain> chains[Plan::kRowTiles][Plan::kScoreTiles];
    for (auto& row : chains) {
      for (auto& chain : row)
        chain.clear();
    }
    multiply(chains);
#pragma unroll
    for (int r = 0; r < Plan::kRowTiles; ++r) {
#pragma unroll
      for (int n = 0; n < Plan::kScoreTiles; ++n)
        scores[r][n].add(chains[r][n], 1.0f);
    }
  } else {
    multiply(scores);
  }
}

// P as A operand, straight from the scores' fragments.
template <SplitDSm80Config kConfig>
__device__ __forceinline__ void pack_weights(
    const Scores<SplitDSm80Plan<kConfig>::kRowTiles, SplitDSm80Plan<kConfig>::kScoreTiles>& scores,
    typename SplitDSm80Plan<kConfig>::FragmentsP& p) {
#pragma unroll
  for (int step = 0; step < kConfig.Bc / 16; ++step) {
#pragma unroll
    for (int r = 0; r < SplitDSm80Plan<kConfig>::kRowTiles; ++r) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float (&pair)[2] = scores[r][2 * step + i / 2][i % 2];
        p[step][r][i] = pack_pair<Element<kConfig.dtype>>(pair[0], pair[1]);
      }
    }
  }
}

// This warp's part of P into the panels that its row group shares.
template <SplitDSm80Config kConfig>
__device__ __forceinline__ void store_weights(
    const Scores<SplitDSm80Plan<kConfig>::kRowTiles, SplitDSm80Plan<kConfig>::kScoreTiles>& scores,
    unsigned char* panels) {
  using Plan = SplitDSm80Plan<kConfig>;
  using Lane = SplitDSm80Lane<kConfig>;
#pragma unroll
  for (int n = 0; n < Plan::kScoreTiles; ++n) {
    const int column = Lane::warp_n() * Plan::kWarpKeys + 8 * n;
    unsigned char* panel = panels + column / 64 * Plan::PanelQ::kBytes;
#pragma unroll
    for (int r = 0; r < Plan::kRowTiles; ++r) {
#pragma unroll
      for (int h = 0; h < 2; ++h) {
        const float (&pair)[2] = scores[r][n][h];
        auto* chunk = reinterpret_cast<uint32_t*>(
            panel + Plan::PanelQ::offset(Lane::row() + 16 * r + 8 * h, column % 64 / 8));
        chunk[Lane::index() % 4] = pack_pair<typename Plan::Element>(pair[0], pair[1]);
      }
    }
  }
}

// Bk keys of P from there, as A operand; `panels` is this lane's address.
template <SplitDSm80Config kConfig>
__device__ __forceinline__ void load_weights(uint32_t panels, int first_step,
                                             typename SplitDSm80Plan<kConfig>::FragmentsP& p) {
  using Panel = typename SplitDSm80Plan<kConfig>::PanelQ;
#pragma unroll
  for (int i = 0; i < kConfig.Bk / 16; ++i) {
    const int step = first_step + i;
    const uint32_t chunk = Panel::advance(panels + step / 4 * Panel::kBytes, 2 * (step % 4));
#pragma unroll
    for (int r = 0; r < SplitDSm80Plan<kConfig>::kRowTiles; ++r) {
      ldmatrix_x4(p[i][r], chunk + 16 * r * Panel::kPitch);
    }
  }
}

// O += P V over one slice: kNumPanels panels of O from first_panel on, Bk keys from the MMA steps
// first_step of P on. F16 chains sum these keys from zero and then join O, times `chain_scale`.
template <SplitDSm80Config kConfig, int kFirstPanel, int kNumPanels, class Prefetch>
__device__ __forceinline__ void multiply_pv(typename SplitDSm80Plan<kConfig>::OutSums& out,
                                            const typename SplitDSm80Plan<kConfig>::FragmentsP& p,
                                            int first_step, uint32_t v, float chain_scale,
                                            const Prefetch& prefetch) {
  using Plan = SplitDSm80Plan<kConfig>;
  using PanelV = typename Plan::PanelV;
  using Element = typename Plan::Element;
  using Chain = typename Plan::Pv::Chain;
  constexpr int kSteps = kConfig.Bk / 16;
  constexpr int kTiles = Plan::kPanelTiles < 2 ? 1 : 2;  // that one ldmatrix feeds per MMA step
  constexpr int kLoadSteps = 2 / kTiles;
  constexpr int kTileLoads = kSteps / kLoadSteps;
  constexpr int kPanelLoads = Plan::kPanelTiles / kTiles * kTileLoads;
  constexpr int kLoads = kNumPanels * kPanelLoads;

  auto fragments_v = stream_fragments<kConfig.fragment_sets, kLoads, 1>([v](int load, auto& b) {
    const int n = load % kPanelLoads / kTileLoads * kTiles;
    ldmatrix_x4_trans(b[0], PanelV::advance(v, n) + load / kPanelLoads * PanelV::kBytes +
                                16 * (load % kTileLoads * kLoadSteps) * PanelV::kPitch);
  });
#pragma unroll
  for (int panel = 0; panel < kNumPanels; ++panel) {
#pragma unroll
    for (int n = 0; n < Plan::kPanelTiles; n += kTiles) {
      const auto multiply = [&](Tile16x8<Chain>(&sums)[Plan::kRowTiles][kTiles]) {
#pragma unroll
        for (int step = 0; step < kSteps; step += kLoadSteps) {
          const int load = panel * kPanelLoads + n / kTiles * kTileLoads + step / kLoadSteps;
          const auto& b = fragments_v.next(load)[0];
#pragma unroll
          for (int i = 0; i < 2; ++i) {
            const int p_step = first_step + step + i / kTiles;
#pragma unroll
            for (int r = 0; r < Plan::kRowTiles; ++r) {
              mma<Element>(sums[r][i % kTiles], p[p_step][r], b[2 * i], b[2 * i + 1]);
            }
          }
        }
      };

      Tile16x8<Chain> sums[Plan::kRowTiles][kTiles];
      constexpr bool kInPlace = __is_same(Chain, float);
#pragma unroll
      for (int r = 0; r < Plan::kRowTiles; ++r) {
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
          if constexpr (kInPlace) {
            sums[r][t] = out[kFirstPanel + panel][r][n + t];
          } else {
            sums[r][t].clear();
          }
        }
      }
      multiply(sums);
      if (panel == 0 && n == 0) prefetch();
#pragma unroll
      for (int r = 0; r < Plan::kRowTiles; ++r) {
#pragma unroll
        for (int t = 0; t < kTiles; ++t) {
          if constexpr (kInPlace) {
            out[kFirstPanel + panel][r][n + t] = sums[r][t];
          } else {
            out[kFirstPanel + panel][r][n + t].add(sums[r][t], chain_scale);
          }
        }
      }
    }
  }
}

}  // namespace ffpa
