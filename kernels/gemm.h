// y = x wᵀ + bias: the product of activations with a weight matrix stored [outputs, inputs].
#pragma once

#include "kernels/device.h"
#include "kernels/tensor.h"

namespace weft::kernels {

// With `invariant`, y[t, n] has the same bits whatever tokens, n, the threads and the neighbours
// are: each chunk of k is one dot product in 16 fixed lanes (lane i takes elements i, i + 16, … by
// fma in order; then a fixed tree over lanes), and the chunks' float32 sums are added in a fixed
// binary tree ((c0 + c1) + (c2 + c3)) + …; bias is added last. Without it BLAS may take over for
// many tokens. Partial sums of a row-parallel layer go out as y.dtype f32 with no bias.
struct Gemm {
  In x;     // [tokens, k], rows x_stride elements apart
  In w;     // [n, k], dense
  In bias;  // [n] or null
  Out y;    // [tokens, n], rows y_stride elements apart
  size_t tokens = 0;
  size_t n = 0;
  size_t k = 0;
  size_t x_stride = 0;
  size_t y_stride = 0;
  size_t n_chunks = 1;  // a power of two, at most 8, that divides k
  bool invariant = true;
  // Scratch of gemm_workspace_floats(…) floats; may be null when that is 0.
  float* workspace = nullptr;
};

size_t gemm_workspace_floats(size_t max_tokens, size_t max_n, size_t max_k);

// Acc float at run time, double as oracle (plain order, no lanes).
template <class Acc = float>
void gemm(const Gemm& args, Stream& stream);

}  // namespace weft::kernels
