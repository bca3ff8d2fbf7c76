// How split_d-sm80 hands over its result.
#pragma once

#include "kernels/split_d_sm80_loader.cuh"
#include "kernels/split_d_sm80_plan.cuh"

namespace ffpa {

// Writes `out` times out_scale / sum, and the log-sum-exp. `sum` is of whole rows.
template <SplitDSm80Config kConfig>
__device__ __forceinline__ void store_rows(const ForwardParams& params,
                                           const typename SplitDSm80Plan<kConfig>::OutSums& out,
                                           const PerRow<SplitDSm80Plan<kConfig>::kRowTiles>& base,
                                           const PerRow<SplitDSm80Plan<kConfig>::kRowTiles>& sum,
                                           float out_scale) {
  using Plan = SplitDSm80Plan<kConfig>;
  using Lane = SplitDSm80Lane<kConfig>;
  using Element = typename Plan::Element;

  const CtaRows rows(params, kConfig.Br);
  const int num_rows = params.seqlen_q - rows.first_row;
  Element* matrix = static_cast<Element*>(params.out) +
                    CtaRows::offset(params.out_strides, rows.batch, rows.head, rows.first_row);
  float* lse =
      params.lse + (rows.batch * params.nheads_q + rows.head) * params.seqlen_q + rows.first_row;
#pragma unroll
  for (int r = 0; r < Plan::kRowTiles; ++r) {
#pragma unroll
    for (int h = 0; h < 2; ++h) {
      const int row = Lane::row() + 16 * r + 8 * h;
      if (row >= num_rows) continue;
      if (params.lse != nullptr && Lane::warp_n() == 0 && Lane::index() % 4 == 0) {
        lse[row] = log_sum_exp(base[r][h], sum[r][h]);
      }
      const float factor = sum[r][h] == 0.0f ? 0.0f : out_scale / sum[r][h];
      Element* matrix_row = matrix + row * params.out_strides.row;
#pragma unroll
      for (int panel = 0; panel < Plan::kPanels; ++panel) {
#pragma unroll
        for (int n = 0; n < Plan::kPanelTiles; ++n) {
          const int column =
              64 * panel + 8 * (Lane::warp_n() * Plan::kPanelTiles + n) + Lane::column();
          if (column >= params.headdim_v) continue;
          const float2 pair = out[panel][r][n].row(h);
          *reinterpret_cast<uint32_t*>(matrix_row + column) =
              pack_pair<Element>(pair.x * factor, pair.y * factor);
        }
      }
    }
  }
}

}  // namespace ffpa
