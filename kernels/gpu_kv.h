// What happens to Q, K and V between their product and attention, on a GPU: QK norm, rotary
// embedding, and the new keys and values into the paged cache, in one pass.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/kv_append.h"
#include "kernels/tensor.h"

struct CUstream_st;

namespace weft::kernels {

using CudaStream = CUstream_st*;

// PagedRows in device memory. Position −1 marks a row of padding: nothing is written for it.
struct GpuRows {
  const int32_t* positions = nullptr;    // [tokens]
  const int32_t* sequence = nullptr;     // [tokens] row of block_table
  const int32_t* block_table = nullptr;  // [n_sequences, table_stride]
  size_t table_stride = 0;
  size_t tokens = 0;
};

// Per token row: heads of q and k are normalised where a weight is given (kernels/rms_norm.h, with
// each step rounded as there), rotated (kernels/rope.h), q is written back in place, k and v go to
// the cache alone. With leaves_q, q is neither normalised nor rotated. q, k and v have one dtype,
// and so do both weights; the cache may have others.
struct GpuQkvPost {
  Out qkv;    // [tokens, n_heads + 2 n_kv_heads, head_dim], rows `stride` elements apart
  In q_norm;  // [head_dim] or null
  In k_norm;  // [head_dim] or null
  float eps = 1e-6f;
  const float* rope = nullptr;  // [context, head_dim / 2, 2] cosines and sines
  KvLayer cache;                // base in device memory
  GpuRows rows;
  size_t n_heads = 0;
  size_t n_kv_heads = 0;
  size_t head_dim = 0;            // even, at most 256
  size_t stride = 0;              // even
  bool leaves_q = false;          // q stays as it is: attention rotates it on the way
  bool dependent_launch = false;  // programmatic: starts while the kernel before it ends
};

// Throws std::invalid_argument on shapes it does not take.
void gpu_qkv_post(const GpuQkvPost& args, CudaStream stream);

}  // namespace weft::kernels
