// What the extension knows of each compiled kernel. The list itself is generated from kernels.toml.
#pragma once

#include <driver_types.h>

#include <vector>

#include "params.h"

namespace ffpa {

// What the compiled code says of itself.
struct KernelInfo {
  const char* id;     // technique and architecture: "split_d-sm80"
  const char* dtype;  // "fp16", "bf16"
  const char* acc;    // "f16", "f32", ...
  int headdim;        // the largest D it takes
  int Br;
  int Bc;
  int num_threads;
  int smem_bytes;  // dynamic, per CTA
  int ctas;        // that share a tile of queries
  cudaError_t (*launch)(const ForwardParams&, cudaStream_t);
  // How many of its clusters the current device runs at once; null: it needs none.
  cudaError_t (*resident_clusters)(int& count);
};

// What kernels.toml says of it.
struct Instance {
  const char* name;     // "split_d-sm80/d512/fp16/f32", then "/variant" where there is one
  const char* variant;  // "": the one to use; others are for comparison
  bool fallback;        // a variant for devices with too little shared memory for the first
  bool narrow;          // a variant of fewer rows for work too small to fill the device
  bool masks;           // takes an attn_mask
  bool splits;          // a variant that splits the keys over CTAs
  int max_seqlen_k;     // beyond it sums lose more than the accumulator's bound; 0: any length
  std::vector<const char*> archs;  // in this build: "80", "90a"
  const char* lesson;
  const char* reason;  // why this configuration
  KernelInfo kernel;
};

const std::vector<Instance>& all_instances();  // in the order of kernels.toml

const char* build_info_json();

}  // namespace ffpa
