// Causal attention of token rows over the paged cache: prefill chunks and decode rows together.
#pragma once

#include "kernels/kv_append.h"

namespace weft::kernels {

// Softmax restarts at absolute multiples of this many positions and the parts are merged in order,
// so a row's bits do not depend on chunking, batch or neighbours.
inline constexpr size_t kSoftmaxSpan = 512;

// out[t, h] = Σ_j softmax_j(scale · q[t, h] · k[j, g]) v[j, g] over positions j <= p of row t's
// sequence, and j > p − window where window > 0; g = h / (n_heads / n_kv_heads). Rows of one
// sequence that follow each other (a prefill chunk) share the reads of keys and values. Scores and
// sums are float32; probabilities are not rounded.
struct Attention {
  In q;  // [tokens, n_heads, head_dim], rows q_stride elements apart
  KvLayer cache;
  PagedRows rows;
  Out out;  // [tokens, n_heads, head_dim], dense
  size_t n_heads = 0;
  size_t n_kv_heads = 0;  // divides n_heads
  size_t head_dim = 0;
  size_t q_stride = 0;
  size_t window = 0;  // 0 = none
  float scale = 0;
  // attention_workspace_floats(…) floats.
  float* workspace = nullptr;
};

size_t attention_workspace_floats(size_t n_threads, size_t n_heads, size_t n_kv_heads,
                                  size_t head_dim);

template <class Acc = float>
void attention(const Attention& args, Stream& stream);

}  // namespace weft::kernels
