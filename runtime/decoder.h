// The layers of one stage on one tensor-parallel rank: token rows in, residual stream out.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "kernels/kv_append.h"
#include "parallel/communicator.h"
#include "planner/plan.h"
#include "runtime/base/pages.h"
#include "runtime/kv_cache.h"
#include "runtime/step_clock.h"
#include "runtime/weights.h"

namespace weft::runtime {

// What a decoder is made of. T = max_batch_tokens rows; h, kv, f as in weights.h; d head_dim.
struct DecoderShape {
  planner::ModelSpec spec;
  planner::ShardShapes shard;
  planner::Formats formats;
  planner::Limits limits;
  planner::Range layers;  // of the model
  bool invariant = true;
};

// Activation buffers of one rank, all in one arena.
struct Activations {
  kernels::Out residual;     // [T, hidden], and padding for slices of an edge
  kernels::Out normed;       // [T, hidden]
  kernels::Out qkv;          // [T, (h + 2 kv) d]
  kernels::Out attended;     // [T, h d]
  kernels::Out gate_up;      // [T, 2 f]
  kernels::Out gated;        // [T, f]
  float* partial = nullptr;  // [T, hidden]
  float* workspace = nullptr;
  Pages arena;

  Activations(const DecoderShape& shape, size_t n_threads);
};

class Decoder {
 public:
  // The weights, cache, group and clock outlive the decoder.
  Decoder(const DecoderShape& shape, const StageWeights& weights, KvCache& cache,
          parallel::Communicator& group, kernels::Stream& stream, StepClock* clock = nullptr);

  // residual = embedding rows of the token ids, summed over the vocabulary's shards.
  void embed(std::span<const int32_t> ids);
  // All layers of the stage on the rows in residual().
  void forward(const kernels::PagedRows& rows);

  // [T, hidden] in the activation dtype: a stage's input and output.
  kernels::Out residual() const { return act_.residual; }

 private:
  void layer(size_t i, const kernels::PagedRows& rows);
  void attend(size_t i, const kernels::PagedRows& rows);
  void normalise(kernels::In weight, size_t tokens);
  void normalise_heads(kernels::In weight, size_t first_head, size_t n_heads, size_t tokens);
  void rotate(size_t first_head, size_t n_heads, const kernels::PagedRows& rows);
  void product(kernels::In x, kernels::In w, kernels::In bias, kernels::Out y, size_t n, size_t k,
               size_t tokens);
  void add_row_parallel(size_t i, StepPart part, kernels::In x, kernels::In w, kernels::In bias,
                        size_t k, size_t tokens);
  // Part of layer i begins.
  void begin(size_t i, StepPart part) {
    mark(clock_, part, static_cast<int32_t>(shape_.layers.begin + i));
  }

  DecoderShape shape_;
  const StageWeights& weights_;
  KvCache& cache_;
  parallel::Communicator& group_;
  kernels::Stream& stream_;
  StepClock* clock_;
  Activations act_;
  std::vector<float> rope_table_;  // [context, head_dim / 2, 2]
};

}  // namespace weft::runtime
