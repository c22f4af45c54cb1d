// The layers of one stage on a GPU: decoder.h's equations as fused operations, enqueued on a
// stream.
#pragma once

#include "kernels/gpu_attention.h"
#include "kernels/gpu_product.h"
#include "parallel/communicator.h"
#include "runtime/decoder.h"
#include "runtime/gpu_arena.h"
#include "runtime/gpu_products.h"
#include "runtime/kv_cache.h"
#include "runtime/weights.h"

namespace weft::runtime {

// Activation buffers of one rank. T = max_batch_tokens rows or, if more, those of the largest
// graph.
struct GpuActivations {
  kernels::Out residual;              // [T, hidden], and padding for slices of an edge
  kernels::Out qkv;                   // [T, (h + 2 kv) d]
  kernels::Out attended;              // [T, h d]
  kernels::Out gated;                 // [T, f]
  kernels::Out scaled;                // [kStreamTokens, hidden], of deferred norms
  float* squares = nullptr;           // [kMaxNormParts, kStreamTokens], of the same
  float* partial = nullptr;           // [T, hidden], where tp > 1
  std::byte* attention = nullptr;     // workspace
  const float* rope_table = nullptr;  // [context, head_dim / 2, 2]
};

// What a pass over the layers runs on.
struct GpuPass {
  const int32_t* ids = nullptr;  // [tokens], first stage
  kernels::GpuRows rows;
  // kernels/gpu_attention.h; null only where each row is the newest of a sequence of its own.
  const int32_t* single = nullptr;
  const kernels::GpuTile* tiles = nullptr;
  kernels::GpuRowCounts counts;
  size_t max_context = 0;
  // Rows whose output is wanted, ascending row numbers on the GPU, or null for all of them. The
  // stage's last layer then computes no more of the others than their keys and values.
  const int32_t* wanted = nullptr;
  size_t n_wanted = 0;
};

class GpuDecoder {
 public:
  // T.
  static size_t max_rows(const planner::Limits& limits);

  // Takes its memory from `arena`; with one that only counts nothing else is done. Weights (gate
  // and up rows in turn), cache, group and products outlive the decoder.
  GpuDecoder(const DecoderShape& shape, const StageWeights& weights, const KvCache& cache,
             parallel::Communicator& group, GpuProducts& products, GpuArena& arena,
             kernels::Stream& stream, StepClock* clock = nullptr);

  // residual = embedding rows of pass.ids.
  void embed(const GpuPass& pass);
  // All layers of the stage on the rows in residual().
  void forward(const GpuPass& pass);
  // What the last forward() made of them: all rows, or those that were wanted, side by side.
  kernels::In output() const { return stream_rows_; }
  bool output_is_narrow() const { return stream_rows_.data != act_.residual.data; }

  // Times the products of a layer, on numbers that are left in the buffers.
  void measure_products();

  kernels::Out residual() const { return act_.residual; }

 private:
  kernels::GpuProduct qkv_product(size_t i, size_t tokens) const;
  kernels::GpuProduct gate_up_product(size_t i, size_t tokens) const;
  kernels::GpuProduct row_parallel_product(kernels::In x, kernels::In w, kernels::In bias, size_t k,
                                           size_t tokens) const;
  void layer(size_t i, const GpuPass& pass);
  void attend(size_t i, const GpuPass& pass, bool narrows);
  bool narrows(const GpuPass& pass) const;
  kernels::In narrow(const GpuPass& pass);
  kernels::GpuProduct with_deferred_norm(kernels::GpuProduct product);
  // `next_norm` of the rows that this leaves, null where none follows.
  void add_row_parallel(size_t i, StepPart part, kernels::In x, kernels::In w, kernels::In bias,
                        size_t k, size_t tokens, kernels::In next_norm);
  // Part of layer i begins.
  void begin(size_t i, StepPart part) {
    mark(clock_, part, static_cast<int32_t>(shape_.layers.begin + i));
  }

  DecoderShape shape_;
  const StageWeights& weights_;
  const KvCache& cache_;
  parallel::Communicator& group_;
  GpuProducts& products_;
  kernels::Stream& stream_;
  StepClock* clock_;
  GpuActivations act_;
  kernels::Out stream_rows_;  // the residual stream: act_.residual, or the wanted rows of it
  size_t norm_parts_ = 0;     // of the norm that the last product deferred
};

}  // namespace weft::runtime
