// The arguments of a forward kernel, free of CUDA and Python types.
#pragma once

#include <cstdint>

namespace ffpa {

// Distances in elements; the last dimension always has stride 1.
struct Strides {
  int64_t batch;
  int64_t head;
  int64_t row;
};

// attn_mask, broadcast to [batch, nheads_q, seqlen_q, seqlen_k]: distances in elements, 0 along a
// dimension that it does not have. True or a finite number lets a query see a key.
struct ScoreMask {
  enum Kind : int32_t { none, boolean, element, f32 };  // element: the type of q
  Kind kind;
  const void* values;
  int64_t batch;
  int64_t head;
  int64_t row;
  int64_t column;
};

struct ForwardParams {
  const void* q;  // [batch, nheads_q,  seqlen_q, headdim]
  const void* k;  // [batch, nheads_kv, seqlen_k, headdim]
  const void* v;  // [batch, nheads_kv, seqlen_k, headdim_v]
  void* out;      // [batch, nheads_q,  seqlen_q, headdim_v]
  float* lse;     // [batch, nheads_q,  seqlen_q] contiguous, natural logarithm; null: not wanted

  Strides q_strides;
  Strides k_strides;
  Strides v_strides;
  Strides out_strides;

  int32_t batch;
  int32_t nheads_q;
  int32_t nheads_kv;  // divides nheads_q
  int32_t seqlen_q;
  int32_t seqlen_k;
  int32_t headdim;              // a multiple of 8, at most the D that the kernel was compiled for
  int32_t headdim_v = headdim;  // a multiple of 8, at most headdim

  float scale_log2;  // softmax scale · log2(e), positive and finite
  // Query row i sees the keys j <= i + diagonal. Causal: 0 (upper left) or seqlen_k - seqlen_q
  // (lower right, may be negative). Full attention: seqlen_k - 1, so that one rule serves both.
  int32_t diagonal;
  ScoreMask mask;  // on top of that; of kind none for kernels that take no mask

  // Kernels that split the keys of a row: where each split leaves its unnormalised O and its row's
  // base and sum, for a second kernel to merge. Unused, and null, where splits is 1.
  int32_t splits;
  float* split_out;    // [batch, nheads_q, seqlen_q, splits, headdim_v]
  float* split_state;  // [batch, nheads_q, seqlen_q, splits, 2]
};

}  // namespace ffpa
