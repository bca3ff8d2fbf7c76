// The plan of the solo structure (split_d_sm90_solo.cuh): its sizes, and what lies where in shared
// memory.
#pragma once

#include <cstdint>

#include "kernels/split_d_sm90_common.cuh"
#include "prim/mbarrier.cuh"
#include "prim/tensor_map.h"
#include "prim/wgmma.cuh"
#include "tile/ring.cuh"
#include "tile/warpgroup_softmax.cuh"

namespace ffpa {

struct SoloParams {
  PieceMap q;
  PieceMap k;
  PieceMap v;
  SplitDSm90Problem problem;
};

template <SplitDSm90Config kConfig>
struct SplitDSm90SoloPlan {
  static constexpr DType dtype = kConfig.dtype;
  static constexpr Acc acc = kConfig.acc;
  static constexpr int headdim = kConfig.headdim;
  static constexpr int Br = kConfig.Br;
  static constexpr int Bc = kConfig.Bc;
  static constexpr bool kMasks = kConfig.masks;
  static constexpr bool kSplits = kConfig.splits;
  static constexpr bool kPingPong = kConfig.ping_pong;

  static constexpr int kConsumers = Br / kWarpgroupRows;
  static constexpr int num_threads = (1 + kConsumers) * kWarpgroupThreads;
  static constexpr int kBoxes = headdim / kBoxColumns;
  static constexpr int kQBoxBytes = Br * kBoxColumns * 2;
  static constexpr int kKvBoxBytes = Bc * kBoxColumns * 2;
  static constexpr int kBlockBytes = kBoxes * kKvBoxBytes;
  static_assert(kSupported<acc>, "split_d-sm90 accumulates in f32, f16 or qk32_pv16");
  static_assert(headdim % kBoxColumns == 0, "the compiled headdim must be a multiple of 64");
  static_assert(Br % kWarpgroupRows == 0, "Br must be a multiple of a warpgroup's 64 rows");
  static_assert(kConfig.slots >= 3, "two blocks are in use in a step: the ring needs a third");

  // What a thread may hold: 64 Ki registers among all of them, in steps of 8.
  static constexpr int kProducerRegisters = kConsumers == 3 ? 32 : 24;
  static constexpr int kConsumerRegisters = kConsumers == 4 ? 112 : kConsumers == 3 ? 160 : 240;

  // Where there is room, the next tile's Q comes while this one's is in use.
  static constexpr int kQueryBuffers =
      2 * kBoxes * kQBoxBytes + kConfig.slots * kBlockBytes + 1024 <= kMaxSmemBytes ? 2 : 1;

  // Tiles are kept as boxes of 64 columns, rows × 128 bytes each.
  struct Smem {
    alignas(1024) uint8_t q[kQueryBuffers * kBoxes][kQBoxBytes];
    alignas(1024) uint8_t ring[kConfig.slots][kBlockBytes];
    Barrier q_full[kQueryBuffers];
    Barrier q_free[kQueryBuffers];
    Ring<kConfig.slots> blocks;
  };
  static_assert(sizeof(Smem) <= kMaxSmemBytes, "Q and the ring do not fit in shared memory");

  struct NamedBarrier {
    static constexpr int kQueryScaled = 1;        // + consumer: its rows of Q have their factor
    static constexpr int kTurn = 1 + kConsumers;  // + consumer: its turn to issue products
  };

  // One instruction takes 256 columns at most; a wider O is cut at a box.
  static constexpr int kFirstColumns = headdim <= 256 ? headdim : ceil_div(kBoxes, 2) * kBoxColumns;
  static constexpr int kLastColumns = headdim - kFirstColumns;

  using QkSum = ffpa::QkSum<acc, kMasks>;
  using Scores = Accumulator<QkSum, Bc>;
  using Weights = PackedScores<Bc>;
  using Output = Accumulator<PvSum<acc>, headdim>;
  using Position = RingPosition<kConfig.slots>;

  static __device__ __forceinline__ void init_barriers(Smem& smem) {
    for (int buffer = 0; buffer < kQueryBuffers; ++buffer) {
      smem.q_full[buffer].init(1);
      smem.q_free[buffer].init(kConsumers);
    }
    smem.blocks.init(kConsumers);
    fence_barrier_init();
  }
};

}  // namespace ffpa
