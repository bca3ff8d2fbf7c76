// Tensor maps: how the TMA unit sees a (batch, head, row, column) tensor. Host code.
#pragma once

#include <cuda.h>
#include <cudaTypedefs.h>
#include <cuda_runtime.h>

#include <cstdint>

#include "config.cuh"
#include "params.h"

namespace ffpa {

// A box is what one TMA instruction moves: 64 columns (128 bytes) of some rows of one head, stored
// in shared memory with the 128-byte swizzle, from a multiple of 1024 bytes on; or 32 columns, with
// the 64-byte swizzle.
constexpr int kBoxColumns = 64;

struct TensorShape {
  int32_t batch;
  int32_t heads;
  int32_t rows;
  int32_t columns;
};

namespace detail {

struct TensorMapEncoder {
  cudaError_t status;
  PFN_cuTensorMapEncodeTiled_v12000 encode;
};

// Looked up in the driver at run time, so that the extension does not link libcuda.
inline TensorMapEncoder find_tensor_map_encoder() {
  void* entry = nullptr;
  cudaDriverEntryPointQueryResult result;
#if CUDART_VERSION >= 12050
  cudaError_t status = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &entry, 12000,
                                                        cudaEnableDefault, &result);
#else
  cudaError_t status =
      cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &entry, cudaEnableDefault, &result);
#endif
  if (status == cudaSuccess && result != cudaDriverEntryPointSuccess) {
    status = cudaErrorNotSupported;
  }
  return {status, reinterpret_cast<PFN_cuTensorMapEncodeTiled_v12000>(entry)};
}

// The stride of a dimension of size 1 is never used but must still be one that the unit accepts.
inline cuuint64_t stride_bytes(int64_t stride, int32_t size) {
  return static_cast<cuuint64_t>(size == 1 ? 16 : 2 * stride);
}

// `sizes`, `strides` (bytes, from the second dimension on) and `box`: innermost dimension first.
template <int kRank>
cudaError_t encode_tensor_map(CUtensorMap& map, DType dtype, const void* data,
                              const cuuint64_t (&sizes)[kRank],
                              const cuuint64_t (&strides)[kRank - 1],
                              const cuuint32_t (&box)[kRank]) {
  static const TensorMapEncoder encoder = find_tensor_map_encoder();
  if (encoder.status != cudaSuccess) return encoder.status;
  cuuint32_t element_steps[kRank];
  for (cuuint32_t& step : element_steps)
    step = 1;
  const CUresult result = encoder.encode(
      &map,
      dtype == DType::fp16 ? CU_TENSOR_MAP_DATA_TYPE_FLOAT16 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
      kRank, const_cast<void*>(data), sizes, strides, box, element_steps,
      CU_TENSOR_MAP_INTERLEAVE_NONE,
      box[0] == 64 ? CU_TENSOR_MAP_SWIZZLE_128B : CU_TENSOR_MAP_SWIZZLE_64B,
      CU_TENSOR_MAP_L2_PROMOTION_L2_256B, CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  return result == CUDA_SUCCESS ? cudaSuccess : cudaErrorInvalidValue;
}

}  // namespace detail

inline const void* element_at(const void* data, int64_t index) {
  return static_cast<const uint16_t*>(data) + index;
}

// Boxes of `box_rows` × `box_columns`. What lies outside the tensor reads as zero: this is how
// ragged lengths and head dimensions that are no multiple of 64 are served. `boxes` of them side by
// side are moved by one instruction, for which the columns become two dimensions. More than one box
// needs whole boxes: columns % box_columns == 0. A single box may be of the rows of several heads.
inline cudaError_t make_panel_map(CUtensorMap& map, DType dtype, const void* data,
                                  const TensorShape& shape, const Strides& strides, int box_rows,
                                  int box_columns, int boxes, int box_heads = 1) {
  using detail::stride_bytes;
  const bool whole = boxes > 1;
  return detail::encode_tensor_map<5>(
      map, dtype, data,
      {cuuint64_t(whole ? box_columns : shape.columns), cuuint64_t(shape.rows),
       cuuint64_t(whole ? shape.columns / box_columns : 1), cuuint64_t(shape.heads),
       cuuint64_t(shape.batch)},
      {stride_bytes(strides.row, shape.rows), cuuint64_t(box_columns) * 2,
       stride_bytes(strides.head, shape.heads), stride_bytes(strides.batch, shape.batch)},
      {cuuint32_t(box_columns), cuuint32_t(box_rows), cuuint32_t(boxes), cuuint32_t(box_heads), 1});
}

// A matrix that comes in pieces of several boxes side by side: a piece by one instruction, or box
// by box where its columns are no multiple of a box.
struct PieceMap {
  CUtensorMap map;
  int boxes_per_load;
};

inline cudaError_t make_piece_map(PieceMap& piece, DType dtype, const void* data,
                                  const TensorShape& shape, const Strides& strides, int box_rows,
                                  int box_columns, int boxes, int box_heads = 1) {
  piece.boxes_per_load = shape.columns % box_columns == 0 ? boxes : 1;
  return make_panel_map(piece.map, dtype, data, shape, strides, box_rows, box_columns,
                        piece.boxes_per_load, box_heads);
}

}  // namespace ffpa
