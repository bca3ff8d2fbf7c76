// The plan of the pair structure (split_d_sm90_pair.cuh): its sizes, and who finds what where in
// shared memory.
#pragma once

#include <algorithm>
#include <cstdint>

#include "kernels/split_d_sm90_common.cuh"
#include "prim/mbarrier.cuh"
#include "prim/tensor_map.h"
#include "prim/wgmma.cuh"
#include "tile/ring.cuh"
#include "tile/warpgroup_softmax.cuh"

namespace ffpa {

constexpr int kPairCtas = 2;

// The columns of V that one CTA takes: 256 at most and the side, those beyond.
struct PairColumns {
  PieceMap v;
  PieceMap v_side;
};

struct PairParams {
  PieceMap q;
  PieceMap q_piece;
  PieceMap k;
  PairColumns columns[kPairCtas];
  int owned_columns;  // kColumns of V and O, or fewer whole boxes where headdim_v is short
  SplitDSm90Problem problem;
};

// The most keys, in halves of `keys`, of which `columns` columns fit in `bytes`.
constexpr int piece_keys_within(int bytes, int columns, int keys) {
  return keys * columns * 2 <= bytes ? keys : piece_keys_within(bytes, columns, keys / 2);
}

template <SplitDSm90Config kConfig>
struct SplitDSm90PairPlan {
  static constexpr DType dtype = kConfig.dtype;
  static constexpr Acc acc = kConfig.acc;
  static constexpr int headdim = kConfig.headdim;
  static constexpr int Br = kConfig.Br;
  static constexpr int Bc = kConfig.Bc;
  static constexpr bool kMasks = kConfig.masks;
  static constexpr bool kSplits = kConfig.splits;

  static constexpr int kConsumers = 2;
  static constexpr int num_threads = (1 + kConsumers) * kWarpgroupThreads;
  static constexpr int kProducerRegisters = 24;
  static constexpr int kConsumerRegisters = 240;

  static constexpr int kSlots = kConfig.slots;
  static constexpr int kKeys = Bc / kPairCtas;          // whose scores a CTA computes in a step
  static constexpr int kColumns = headdim / kPairCtas;  // of O that a CTA owns

  // K passes in pieces of all keys of a CTA and some columns; V in pieces of some keys and as many
  // columns as one product takes, 256 at most. The columns beyond those, the side, have pieces of
  // their own, of as many keys as fit in a slot.
  static constexpr int kBoxes = headdim / kBoxColumns;
  static constexpr int kKBoxes = kConfig.piece_columns / kBoxColumns;
  static constexpr int kKPieces = ceil_div(kBoxes, kKBoxes);
  static constexpr int kSteps = kKeys / 16;
  static constexpr int kPieceSteps = kConfig.piece_keys / 16;
  static constexpr int kVBoxColumns = kColumns <= 256 && kColumns % kBoxColumns > 0 ? 32 : 64;
  static constexpr int kVBoxes = std::min(kColumns, 256) / kVBoxColumns;
  static constexpr int kVColumns = kVBoxes * kVBoxColumns;
  static constexpr int kSideColumns = kColumns - kVColumns;
  static constexpr int kKBoxBytes = kKeys * kBoxColumns * 2;
  static constexpr int kVBoxBytes = kConfig.piece_keys * kVBoxColumns * 2;
  static constexpr int kKPieceBytes = kKBoxes * kKBoxBytes;
  static constexpr int kVPieceBytes = kVBoxes * kVBoxBytes;
  static constexpr int kSlotBytes = std::max(kKPieceBytes, kVPieceBytes);
  static constexpr int kSideKeys = piece_keys_within(kSlotBytes, kSideColumns, kKeys);
  static constexpr int kSideBoxColumns = kSideColumns % kBoxColumns > 0 ? 32 : 64;
  static constexpr int kSideBoxes = kSideColumns / kSideBoxColumns;
  static constexpr int kSideBoxBytes = kSideKeys * kSideBoxColumns * 2;
  static constexpr int kSidePieces = kSideColumns > 0 ? kKeys / kSideKeys : 0;
  static constexpr int kVPieces = kSidePieces + kSteps / kPieceSteps;  // for the keys of one CTA

  // The first columns of Q come as pieces too, into registers (split_d_sm90_query_fragments.cuh).
  static constexpr int kQRegisterBoxes = kConfig.query_boxes;
  static constexpr int kQBoxes = kBoxes - kQRegisterBoxes;  // in shared memory
  static constexpr int kQBoxBytes = Br * kBoxColumns * 2;
  static constexpr int kQPieceColumns = kQBoxBytes <= kSlotBytes ? kBoxColumns : kBoxColumns / 2;
  static constexpr int kQPieceBytes = Br * kQPieceColumns * 2;
  static constexpr int kQPieces = kQRegisterBoxes * kBoxColumns / kQPieceColumns;
  static_assert(kQPieceBytes <= kSlotBytes || kQPieces == 0, "half a box of Q must fit in a slot");
  static_assert(Br == kConsumers * kWarpgroupRows, "two warpgroups of 64 rows");
  static_assert(kSupported<acc>, "split_d-sm90 accumulates in f32, f16 or qk32_pv16");
  static_assert(headdim % kBoxColumns == 0, "the compiled headdim must be a multiple of 64");
  static_assert(kSideColumns <= 256 && kSideKeys % 16 == 0, "a piece takes one product a step");

  // How many pieces the tensor cores may be behind the one being issued.
  static constexpr int kBehind = kConfig.behind;
  static constexpr bool kOwnFirst = kConfig.own_first;
  static_assert(kSlots >= kBehind + 2, "the ring needs pieces to come beside those in use");
  static_assert(kBehind <= kVPieces,
                "with V of one CTA's keys issued, what came before has to be done: the scores, or "
                "the products that read the own P");

  static constexpr int kQueryBuffers = 1;

  struct Smem {
    alignas(1024) uint8_t q[kQBoxes][kQBoxBytes];
    alignas(1024) uint8_t ring[kSlots][kSlotBytes];
    alignas(16) uint32_t peer_p[kConsumers][kKeys / 16][kWarpgroupThreads][4];
    float2 peer_max[2][kConsumers][kWarpgroupRows / 2];  // turn about; rows r and r + 8
    float2 peer_sum[kConsumers][kWarpgroupRows / 2];
    Barrier q_full[kQueryBuffers];
    Barrier q_free[kQueryBuffers];
    Ring<kSlots> pieces;
    Barrier max_full[2][kConsumers];  // the peer's maxima have arrived
    Barrier sum_full[kConsumers];     // the peer's row sums have arrived
    Barrier p_full[kConsumers];       // the peer's P has arrived
    Barrier peer_p_free[kConsumers];  // the peer has read the P that it was sent
  };
  static_assert(sizeof(Smem) <= kMaxSmemBytes, "Q and the ring do not fit in shared memory");
  static constexpr int kPBytes = sizeof(Smem::peer_p) / kConsumers;
  static constexpr int kRowsBytes = sizeof(Smem::peer_sum) / kConsumers;

  using QkSum = ffpa::QkSum<acc, kMasks>;
  using Scores = Accumulator<QkSum, kKeys>;
  using Weights = PackedScores<kKeys>;
  using Output = Accumulator<PvSum<acc>, kColumns>;
  using Position = RingPosition<kSlots>;

  struct NamedBarrier {
    static constexpr int kQueryScaled = 1;  // + consumer: its rows of Q have their factor
    static constexpr int kQueryTaken = 3;   // + consumer: its fragments of Q are in registers
  };

  static __device__ __forceinline__ void init_barriers(Smem& smem) {
    smem.q_full[0].init(1);
    smem.q_free[0].init(kConsumers);
    smem.pieces.init(kConsumers);
    for (int consumer = 0; consumer < kConsumers; ++consumer) {
      smem.max_full[0][consumer].init(1);
      smem.max_full[1][consumer].init(1);
      smem.sum_full[consumer].init(1);
      smem.p_full[consumer].init(1);
      smem.p_full[consumer].arrive_expecting(kPBytes);
      smem.peer_p_free[consumer].init(kWarpgroupThreads / 32);
    }
    fence_barrier_init();
  }
};

}  // namespace ffpa
