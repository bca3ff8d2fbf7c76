// What a split_d-sm80 kernel is configured by, and what follows from it (split_d_sm80.cuh).
#pragma once

#include "config.cuh"
#include "prim/mma_sm80.cuh"
#include "tile/fragment_stream.cuh"
#include "tile/panels.cuh"
#include "tile/slice_ring.cuh"
#include "tile/warp_softmax.cuh"

namespace ffpa {

// Where the A operand of QKᵀ comes from in each MMA step.
enum class QPlace {
  smem,       // shared memory, where Q lies all the time
  registers,  // which hold it all the time
  streamed,   // shared memory, but Q is fetched again with every slice of K
};

struct SplitDSm80Config {
  DType dtype;
  Acc acc;
  int headdim;
  int Br;
  int Bc;
  int Bd;  // columns of a slice of K
  int Bk;  // keys of a slice of V
  int Bv;  // columns of a slice of V
  int warps_m;
  int warps_n;
  int stages;           // slots of the ring
  int lead;             // how many slices copies run ahead of products
  int stages_v = 0;     // slots of a second ring, for V alone; 0: K and V share one
  bool swizzle = true;  // or pad the rows
  QPlace q_in = QPlace::smem;
  int fragment_sets = 1;  // of registers for operands; 2 loads the next ones ahead of the products
  int ctas_per_sm = 1;    // what the register allocation aims at
  bool masks = false;     // takes an attn_mask; without, it costs nothing
};

// What follows from a configuration.
template <SplitDSm80Config kConfig>
struct SplitDSm80Plan {
  using Element = ffpa::Element<kConfig.dtype>;
  using Qk = typename AccPolicy<kConfig.acc>::Qk;
  using Pv = typename AccPolicy<kConfig.acc>::Pv;
  static constexpr bool kF16Scores = __is_same(typename Qk::Chain, __half);
  static constexpr bool kF16Out = __is_same(typename Pv::Stored, __half);

  static constexpr int kWarpsN = kConfig.warps_n;
  static constexpr int kThreads = 32 * kConfig.warps_m * kWarpsN;
  static constexpr int kWarpRows = kConfig.Br / kConfig.warps_m;
  static constexpr int kRowTiles = kWarpRows / 16;
  static constexpr int kWarpKeys = kConfig.Bc / kWarpsN;
  static constexpr int kScoreTiles = kWarpKeys / 8;
  static constexpr int kPanels = kConfig.headdim / 64;
  static constexpr int kPanelTiles = 8 / kWarpsN;  // 16 x 8 tiles of O per warp, panel and row tile

  static constexpr int kPanelsK = kConfig.Bd / 64;
  static constexpr int kSlicesK = ceil_div(kPanels, kPanelsK);  // the last may be narrower
  static constexpr int kPanelsV = kConfig.Bv / 64;
  static constexpr int kSlicesV = ceil_div(kPanels, kPanelsV);  // for the same keys
  static constexpr int kKeyBlocks = kConfig.Bc / kConfig.Bk;

  using PanelQ = Panel<kConfig.Br, kConfig.swizzle>;
  using PanelK = Panel<kConfig.Bc, kConfig.swizzle>;
  using PanelV = Panel<kConfig.Bk, kConfig.swizzle>;
  using PassesQ = PanelPasses<PanelQ, kPanels, kThreads>;
  using PassesQSlice = PanelPasses<PanelQ, kPanelsK, kThreads>;
  using PassesK = PanelPasses<PanelK, kPanelsK, kThreads>;
  using PassesV = PanelPasses<PanelV, kPanelsV, kThreads>;

  static constexpr int kSliceBytesK = kPanelsK * PanelK::kBytes;
  static constexpr int kSliceBytesV = kPanelsV * PanelV::kBytes;
  static constexpr bool kStreamsQ = kConfig.q_in == QPlace::streamed;
  static constexpr int kSliceBytesKQ = kSliceBytesK + (kStreamsQ ? kPanelsK * PanelQ::kBytes : 0);
  static constexpr bool kOneRing = kConfig.stages_v == 0;
  static constexpr int kSlotBytes =
      kOneRing && kSliceBytesV > kSliceBytesKQ ? kSliceBytesV : kSliceBytesKQ;

  // Shared memory, in this order.
  static constexpr int kBarrierBytes = 128;
  static constexpr int kRowBytes = kWarpsN > 1 ? kConfig.Br * kWarpsN * 4 : 0;
  static constexpr int kBytesQ = kStreamsQ ? 0 : kPanels * PanelQ::kBytes;
  static constexpr int kBytesP = kWarpsN > 1 ? ceil_div(kConfig.Bc, 64) * PanelQ::kBytes : 0;
  static constexpr int kOffsetQ = kBarrierBytes + kRowBytes;
  static constexpr int kOffsetP = kOffsetQ + kBytesQ;
  static constexpr int kOffsetRing = kOffsetP + kBytesP;
  static constexpr int kOffsetRingV = kOffsetRing + kConfig.stages * kSlotBytes;
  static constexpr int kSmemBytes = kOffsetRingV + kConfig.stages_v * kSliceBytesV;

  static_assert(kConfig.headdim % 64 == 0 && kConfig.Bd % 64 == 0);
  static_assert(kConfig.Bc % kConfig.Bk == 0 && kConfig.Bv % 64 == 0);
  static_assert(kConfig.Br % (16 * kConfig.warps_m) == 0 && kWarpKeys % 16 == 0);
  static_assert(kWarpsN == 1 || kWarpsN == 2 || kWarpsN == 4 || kWarpsN == 8);
  static_assert(kConfig.Bk % (kWarpsN == 8 ? 32 : 16) == 0);
  static_assert(kOffsetQ % 128 == 0 && kSlotBytes % 128 == 0 && kBytesQ % 128 == 0);
  static_assert(sizeof(RingBarriers<kConfig.stages + kConfig.stages_v>) <= kBarrierBytes);
  static_assert(!kF16Scores || !kStreamsQ, "F16 scores need Q scaled in shared memory");
  static_assert(kConfig.q_in != QPlace::registers || kSlicesK == 1,
                "registers have no addresses to step through slices by");

  // An F16 chain has no room for a P above 1: with |V| of 8, 32 keys of P = 2^8 pass 65504.
  static constexpr int kMaxExponentP = __is_same(typename Pv::Chain, __half) ? 0 : 8;
  using Softmax = WarpSoftmax<kRowTiles, kMaxExponentP>;
  using ScoreSums = Tile16x8<typename Qk::Stored>[kRowTiles][kScoreTiles];
  using OutSums = Tile16x8<typename Pv::Stored>[kPanels][kRowTiles][kPanelTiles];
  using FragmentsP = uint32_t[(kWarpsN == 1 ? kConfig.Bc : kConfig.Bk) / 16][kRowTiles][4];
  using FragmentsQ = HeldFragments<kConfig.headdim / 16, kRowTiles>;
};

// Where a thread stands in the grid of warps, in the fragments of mma and in the tiles in shared
// memory.
template <SplitDSm80Config kConfig>
struct SplitDSm80Lane {
  using Plan = SplitDSm80Plan<kConfig>;

  static __device__ __forceinline__ int index() { return threadIdx.x % 32; }
  static __device__ __forceinline__ int warp_m() { return threadIdx.x / 32 / Plan::kWarpsN; }
  static __device__ __forceinline__ int warp_n() { return threadIdx.x / 32 % Plan::kWarpsN; }

  // Its first row and column in a 16 x 8 tile: the row in the CTA, the column in the tile.
  static __device__ __forceinline__ int row() { return warp_m() * Plan::kWarpRows + index() / 4; }
  static __device__ __forceinline__ int column() { return 2 * (index() % 4); }

  // Bytes to the row that it hands to ldmatrix: of Q and P as A operand, of K and V as B operand.
  static __device__ __forceinline__ uint32_t offset_a() {
    return Plan::PanelQ::offset(warp_m() * Plan::kWarpRows + index() % 16, index() / 16);
  }
  static __device__ __forceinline__ uint32_t offset_k() {
    return Plan::PanelK::offset(warp_n() * Plan::kWarpKeys + index() / 16 * 8 + index() % 8,
                                index() / 8 % 2);
  }
  static __device__ __forceinline__ uint32_t offset_v() {
    if constexpr (Plan::kPanelTiles == 1) return Plan::PanelV::offset(index(), warp_n());
    return Plan::PanelV::offset(index() % 16, warp_n() * Plan::kPanelTiles + index() / 16);
  }
};

}  // namespace ffpa
