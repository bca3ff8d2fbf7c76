// The plan of the quartet structure (split_d_sm90_quartet.cuh): its sizes, and who finds what where
// in shared memory.
#pragma once

#include <cstdint>

#include "kernels/split_d_sm90_common.cuh"
#include "prim/mbarrier.cuh"
#include "prim/tensor_map.h"
#include "prim/wgmma.cuh"
#include "tile/ring.cuh"
#include "tile/warpgroup_softmax.cuh"

namespace ffpa {

constexpr int kQuartetCtas = 2;
constexpr int kQuartetMembers = 4;  // warpgroups that share a query tile

struct QuartetParams {
  PieceMap q;
  PieceMap q_piece;
  PieceMap k;
  PieceMap v[kQuartetMembers];  // of each member's columns
  SplitDSm90Problem problem;
};

template <SplitDSm90Config kConfig>
struct SplitDSm90QuartetPlan {
  static constexpr DType dtype = kConfig.dtype;
  static constexpr Acc acc = kConfig.acc;
  static constexpr int headdim = kConfig.headdim;
  static constexpr int Br = kConfig.Br;
  static constexpr int Bc = kConfig.Bc;
  static constexpr bool kMasks = kConfig.masks;
  static constexpr bool kSplits = kConfig.splits;

  static constexpr int kConsumers = kQuartetMembers / kQuartetCtas;  // of a CTA
  static constexpr int num_threads = (1 + kConsumers) * kWarpgroupThreads;
  static constexpr int kProducerRegisters = 24;
  static constexpr int kConsumerRegisters = 240;

  static constexpr int kSlots = kConfig.slots;
  static constexpr int kKeys = Bc / kQuartetMembers;  // whose scores a member computes in a step
  // Of O that a member owns. The last one may own fewer, and compute zeros for the rest: products
  // of whole boxes with zeros are faster than those of boxes in part.
  static constexpr int kVBoxes = ceil_div(headdim, kBoxColumns* kQuartetMembers);
  static constexpr int kColumns = kVBoxes * kBoxColumns;
  static constexpr int kPieceKeys = 16;  // of a V piece: one wgmma
  static constexpr int kOwnPieces = kKeys / kPieceKeys;
  static constexpr int kKPieces = headdim / kBoxColumns;
  // The first columns of Q come as pieces too, into registers (split_d_sm90_query_fragments.cuh).
  static constexpr int kQRegisterBoxes = kConfig.query_boxes;
  static constexpr int kQBoxes = kKPieces - kQRegisterBoxes;  // in shared memory
  static constexpr int kQPieces = kQRegisterBoxes;
  static constexpr int kQPieceColumns = kBoxColumns;
  static constexpr int kVPieces = Bc / kPieceKeys;
  static constexpr int kVBoxBytes = kPieceKeys * kBoxColumns * 2;
  static constexpr int kQBoxBytes = Br * kBoxColumns * 2;
  static constexpr int kKPieceBytes = kKeys * kBoxColumns * 2;
  static constexpr int kVPieceBytes = kVBoxes * kVBoxBytes;
  static constexpr int kSlotBytes = kKPieceBytes > kVPieceBytes ? kKPieceBytes : kVPieceBytes;
  static_assert(Br == kWarpgroupRows, "all members have the same 64 rows");
  static_assert(kSupported<acc>, "split_d-sm90 accumulates in f32, f16 or qk32_pv16");
  static_assert(headdim % kBoxColumns == 0, "the compiled headdim must be a multiple of 64");
  static_assert(kQBoxBytes <= kSlotBytes, "a box of Q must fit in a slot");
  static_assert(kQPieces <= kSlots, "all pieces of Q are in the ring before any is given back");
  static_assert(kSlots >= 3, "a ring needs a piece to come beside the two in use");

  static constexpr int kQueryBuffers = 1;

  struct Smem {
    alignas(1024) uint8_t q[kQBoxes][kQBoxBytes];
    alignas(1024) uint8_t ring[kConsumers][kSlots][kSlotBytes];
    alignas(16) uint32_t p[kQuartetMembers][kOwnPieces][kWarpgroupThreads][4];
    float2 rows[2][kQuartetMembers][kWarpgroupRows / 2];  // turn about; rows r and r + 8
    Barrier q_full[kQueryBuffers];
    Barrier q_free[kQueryBuffers];
    Ring<kSlots> pieces[kConsumers];
    Barrier rows_full[2];             // every member's maxima (or sums) have arrived
    Barrier p_full[kQuartetMembers];  // that member's P has arrived
    Barrier p_free[kConsumers];       // this member's P has been read by the three others
  };
  static_assert(sizeof(Smem) <= kMaxSmemBytes, "Q and the rings do not fit in shared memory");
  static constexpr int kPBytes = sizeof(Smem::p) / kQuartetMembers;
  static constexpr int kRowsBytes = sizeof(Smem::rows) / 2;

  using QkSum = ffpa::QkSum<acc, kMasks>;
  using Scores = Accumulator<QkSum, kKeys>;
  using Weights = PackedScores<kKeys>;
  using Output = Accumulator<PvSum<acc>, kColumns>;
  using Position = RingPosition<kSlots>;

  struct NamedBarrier {
    static constexpr int kQueryScaled = 1;
    static constexpr int kQueryTaken = 2;  // + consumer: its fragments of Q are in registers
  };

  static __device__ __forceinline__ void init_barriers(Smem& smem) {
    smem.q_full[0].init(1);
    smem.q_free[0].init(kConsumers);
    for (int turn = 0; turn < 2; ++turn)
      smem.rows_full[turn].init(1);
    for (int consumer = 0; consumer < kConsumers; ++consumer) {
      smem.pieces[consumer].init(1);
      smem.p_free[consumer].init((kQuartetMembers - 1) * kWarpgroupThreads / 32);
    }
    for (int member = 0; member < kQuartetMembers; ++member) {
      smem.p_full[member].init(1);
      smem.p_full[member].arrive_expecting(kPBytes);
    }
    fence_barrier_init();
  }
};

}  // namespace ffpa
