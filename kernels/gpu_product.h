// y = x wᵀ on the GPU with what stands around it in a layer: RMSNorm in front; bias, SwiGLU or the
// residual stream behind.
#pragma once

#include <cstddef>

#include "kernels/tensor.h"

struct CUstream_st;

namespace weft::kernels {

using CudaStream = CUstream_st*;

struct GpuProductPlan;

inline constexpr size_t kStreamTokens = 32;  // from 33 on cuBLASLt reads weights faster
inline constexpr size_t kMaxGpuChunks = 8;
inline constexpr size_t kMaxNormParts = 1024;

// An RMSNorm between two products without a kernel of its own: the first writes y · weight beside
// y, and sums of y² of parts of a row; the second takes those as its x and x_squares, and divides
// its sums by the rms. Rounds once where the norm rounds twice.
struct GpuDeferredNorm {
  In weight;                 // [n], of the dtype of x, or null
  Out scaled;                // [tokens, n], dense, of the dtype of x
  float* squares = nullptr;  // [parts, kStreamTokens], parts at most kMaxNormParts
};

// Every pointer is device memory. Up to kStreamTokens tokens the weights are streamed by weft's own
// kernel; above, cuBLASLt multiplies where there is a plan (not for a residual with a bias, which
// it rounds twice), and else the same kernel in groups of tokens, as always with `invariant`. It
// needs x and w both bf16 or both f16, rows on 16 bytes and chunks of whole 16 elements; any other
// case is computed plainly, correct and slow. Which of the two depends on dtypes, strides, k and
// n_chunks, never on tokens or n.
//
// With `invariant`, y[t, n] has the same bits whatever tokens, n and the neighbours are: each chunk
// of k is summed by one matrix instruction in steps of 16 in order, and the chunks' float32 sums
// are added in the fixed tree of kernels/gemm.h; bias is added last. Without it n_chunks is
// ignored.
struct GpuProduct {
  enum Epilogue {
    kStore,        // y = round(product + bias)
    kAddResidual,  // y = round(residual + (product + bias)), one rounding
    kSwiglu,   // y[t, i] = round(silu(gate) · up) of rows 2i and 2i + 1 of w, bias added before
    kPartial,  // y = product in float32, no bias: a part of a sum over ranks
  };

  In x;            // [tokens, k], rows x_stride elements apart
  In w;            // [n, k], dense; for kSwiglu rows are gate, up by turns: [n / 2, 2, k]
  In bias;         // [n] or null, in the order of w's rows
  In norm_weight;  // [k] or null: x is normalised first, as kernels/rms_norm.h does
  float eps = 1e-6f;
  GpuDeferredNorm defer;             // only where gpu_product_norm_parts() is not 0
  const float* x_squares = nullptr;  // [x_parts, kStreamTokens] of a deferred norm, with its eps
  size_t x_parts = 0;
  In residual;  // [tokens, n] for kAddResidual, rows y_stride elements apart; may be y
  Out y;        // [tokens, n], for kSwiglu [tokens, n / 2]; rows y_stride elements apart
  Epilogue epilogue = kStore;
  size_t tokens = 0;
  size_t n = 0;
  size_t k = 0;
  size_t x_stride = 0;
  size_t y_stride = 0;
  size_t n_chunks = 1;  // a power of two, at most 8, that divides k
  bool invariant = false;
  // Starts while the kernel before still runs, and reads w, bias and norm_weight before it ends:
  // no kernel in flight may write those.
  bool dependent_launch = false;
  void* workspace = nullptr;             // gpu_product_workspace_bytes(…) bytes
  const GpuProductPlan* plan = nullptr;  // of CublasProducts, for many tokens; may be null
};

// Scratch of one product: the normalised x, and gate and up before cuBLASLt's SwiGLU pass.
size_t gpu_product_workspace_bytes(size_t max_tokens, size_t n, size_t k,
                                   DType dtype = DType::bf16);

// How many parts of squares a deferred norm behind this product has; 0 where it must not be
// deferred: for kAddResidual of up to kStreamTokens tokens in bf16, with fast numerics. The product
// that follows must not be invariant either and has as many tokens.
size_t gpu_product_norm_parts(const GpuProduct& args);

// Neither allocates nor synchronises; can be captured. Throws Error where a launch fails, and
// std::logic_error on a broken promise above.
void gpu_product(const GpuProduct& args, CudaStream stream);

}  // namespace weft::kernels
