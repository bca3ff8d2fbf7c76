// Which query rows a CTA owns, where each CTA has one tile of them.
#pragma once

#include <cstdint>

#include "config.cuh"
#include "params.h"

namespace ffpa {

// Br rows of one head, from first_row on.
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

}  // namespace ffpa
