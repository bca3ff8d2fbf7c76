// From the problem in global memory to the slices in split_d-sm80's rings.
#pragma once

#include "kernels/split_d_sm80_plan.cuh"
#include "params.h"

namespace ffpa {

// Which rows a CTA owns: Br of one head, from first_row on.
struct CtaRows {
  int64_t batch;
  int64_t head;
  int64_t kv_head;
  int first_row;

  // Asks anew which CTA this is: the epilogue does, rather than have the answer and its pointers
  // hold registers all through the main loop.
  __device__ __forceinline__ CtaRows(const ForwardParams& params, int tile_rows) {
    int cta;
    asm volatile("mov.u32 %0, %%ctaid.x;" : "=r"(cta));
    const int tiles = ceil_div(params.seqlen_q, tile_rows);
    head = cta / tiles % params.nheads_q;
    batch = cta / tiles / params.nheads_q;
    kv_head = head / (params.nheads_q / params.nheads_kv);
    // Last rows first: under a causal mask they have the most keys.
    first_row = (tiles - 1 - cta % tiles) * tile_rows;
  }

  static __device__ __forceinline__ int64_t offset(const Strides& strides, int64_t batch,
                                                   int64_t head, int64_t row) {
    return batch * strides.batch + head * strides.head + row * strides.row;
  }
};

// What passes through a ring: of each key tile K, column by column, or V, key block by key block,
// or first the one and then the other.
enum class Slices { of_k, of_v, of_both };

// Starts the copies of one slice after another. Its state is this thread's place in the next slices
// of K and of V, so that a slice costs little beyond the copies themselves.
template <SplitDSm80Config kConfig, Slices kSlices>
class SliceLoader {
  using Plan = SplitDSm80Plan<kConfig>;
  using Element = typename Plan::Element;
  using PassesQ = typename Plan::PassesQSlice;
  using PassesK = typename Plan::PassesK;
  using PassesV = typename Plan::PassesV;

 public:
  __device__ __forceinline__ SliceLoader(const ForwardParams& params, const CtaRows& rows,
                                         int num_tiles)
      : params_(params),
        end_key_(num_tiles * kConfig.Bc),
        k_(static_cast<const Element*>(params.k) + PassesK::my_column() +
           CtaRows::offset(params.k_strides, rows.batch, rows.kv_head, PassesK::my_row())),
        v_(static_cast<const Element*>(params.v) + PassesV::my_column() +
           CtaRows::offset(params.v_strides, rows.batch, rows.kv_head, PassesV::my_row())) {
    if constexpr (Plan::kStreamsQ) {
      const int row = rows.first_row + PassesQ::my_row();
      q_ = static_cast<const Element*>(params.q) + PassesQ::my_column() +
           CtaRows::offset(params.q_strides, rows.batch, rows.head, row);
      q_rows_ = params.seqlen_q - row;
    }
  }

  __device__ __forceinline__ bool done() const { return key_ >= end_key_; }

  __device__ __forceinline__ void operator()(uint32_t slot) {
    if (kSlices == Slices::of_k || (kSlices == Slices::of_both && block_ < 0)) {
      load_k(slot);
    } else {
      load_v(slot);
    }
  }

 private:
  __device__ __forceinline__ void load_k(uint32_t slot) {
    const int64_t stride = params_.k_strides.row;
    copy_panels<PassesK>(slot + PassesK::my_offset(), k_, stride,
                         params_.seqlen_k - key_ - PassesK::my_row(),
                         params_.headdim - column_ - PassesK::my_column());
    if constexpr (Plan::kStreamsQ) {
      copy_panels<PassesQ>(slot + Plan::kSliceBytesK + PassesQ::my_offset(), q_ + column_,
                           params_.q_strides.row, q_rows_,
                           params_.headdim - column_ - PassesQ::my_column());
    }
    k_ += kConfig.Bd;
    column_ += kConfig.Bd;
    if (column_ >= kConfig.headdim) {
      k_ += kConfig.Bc * stride - Plan::kSlicesK * kConfig.Bd;
      column_ = 0;
      if (kSlices == Slices::of_k) {
        key_ += kConfig.Bc;
      } else {
        block_ = 0;
      }
    }
  }

  __device__ __forceinline__ void load_v(uint32_t slot) {
    const int64_t stride = params_.v_strides.row;
    copy_panels<PassesV>(slot + PassesV::my_offset(), v_, stride,
                         params_.seqlen_k - key_ - block_ * kConfig.Bk - PassesV::my_row(),
                         params_.headdim_v - column_ - PassesV::my_column());
    v_ += kConfig.Bv;
    column_ += kConfig.Bv;
    if (column_ >= kConfig.headdim) {
      v_ += kConfig.Bk * stride - Plan::kSlicesV * kConfig.Bv;
      column_ = 0;
      if (++block_ == Plan::kKeyBlocks) {
        block_ = kFirstBlock;
        key_ += kConfig.Bc;
      }
    }
  }

  static constexpr int kFirstBlock = kSlices == Slices::of_v ? 0 : -1;

  // The next slice: of K, or of V where block_ says which Bk keys of the tile.
  const ForwardParams& params_;
  int end_key_;
  int key_ = 0;
  int block_ = kFirstBlock;
  int column_ = 0;
  const Element* k_;  // this thread's place in the next slices of K and V
  const Element* v_;
  const Element* q_ = nullptr;
  int q_rows_ = 0;
};

// K and V on their way through shared memory: in one ring that they share, each slice following the
// one that is needed before it, or in two, so that the next K arrives while V is read.
template <SplitDSm80Config kConfig, bool kOneRing = SplitDSm80Plan<kConfig>::kOneRing>
class SliceRings {
  using Plan = SplitDSm80Plan<kConfig>;
  using Loader = SliceLoader<kConfig, Slices::of_both>;
  using Ring = SliceRing<kConfig.stages, kConfig.lead, Plan::kSlotBytes, Loader>;

 public:
  __device__ __forceinline__ SliceRings(const ForwardParams& params, const CtaRows& rows,
                                        int num_tiles, unsigned char* smem)
      : ring_(*reinterpret_cast<typename Ring::Barriers*>(smem),
              shared_address(smem) + Plan::kOffsetRing, Loader(params, rows, num_tiles)) {}

  __device__ __forceinline__ void init() { ring_.init(Plan::kThreads); }
  __device__ __forceinline__ void prime() { ring_.prime(); }
  __device__ __forceinline__ Ring& k() { return ring_; }
  __device__ __forceinline__ Ring& v() { return ring_; }

 private:
  Ring ring_;
};

template <SplitDSm80Config kConfig>
class SliceRings<kConfig, false> {
  using Plan = SplitDSm80Plan<kConfig>;
  using LoaderK = SliceLoader<kConfig, Slices::of_k>;
  using LoaderV = SliceLoader<kConfig, Slices::of_v>;
  using RingK = SliceRing<kConfig.stages, kConfig.lead, Plan::kSlotBytes, LoaderK>;
  using RingV = SliceRing<kConfig.stages_v, kConfig.lead, Plan::kSliceBytesV, LoaderV>;

 public:
  __device__ __forceinline__ SliceRings(const ForwardParams& params, const CtaRows& rows,
                                        int num_tiles, unsigned char* smem)
      : k_(*reinterpret_cast<typename RingK::Barriers*>(smem),
           shared_address(smem) + Plan::kOffsetRing, LoaderK(params, rows, num_tiles)),
        v_(*reinterpret_cast<typename RingV::Barriers*>(smem + sizeof(typename RingK::Barriers)),
           shared_address(smem) + Plan::kOffsetRingV, LoaderV(params, rows, num_tiles)) {}

  __device__ __forceinline__ void init() {
    k_.init(Plan::kThreads);
    v_.init(Plan::kThreads);
  }
  __device__ __forceinline__ void prime() {
    k_.prime();
    v_.prime();
  }
  __device__ __forceinline__ RingK& k() { return k_; }
  __device__ __forceinline__ RingV& v() { return v_; }

 private:
  RingK k_;
  RingV v_;
};

}  // namespace ffpa
