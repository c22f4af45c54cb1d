// Facts and limits of small models with awkward sizes, for tests.
#pragma once

#include "planner/plan.h"

namespace weft::test {

struct Sizes {
  size_t n_layers, hidden, n_heads, n_kv_heads, head_dim, ffn, vocab, context;
};

inline planner::ModelSpec llama_of(const Sizes& sizes) {
  planner::ModelSpec spec;
  spec.name = "small";
  spec.architecture = "LlamaForCausalLM";
  spec.n_layers = sizes.n_layers;
  spec.hidden = sizes.hidden;
  spec.n_heads = sizes.n_heads;
  spec.n_kv_heads = sizes.n_kv_heads;
  spec.head_dim = sizes.head_dim;
  spec.ffn = sizes.ffn;
  spec.vocab = sizes.vocab;
  spec.context = sizes.context;
  return spec;
}

// Grouped-query attention; an FFN of 37 that is padded whatever the layout; a vocabulary of 301.
inline planner::ModelSpec small_model() {
  return llama_of({.n_layers = 3,
                   .hidden = 24,
                   .n_heads = 8,
                   .n_kv_heads = 2,
                   .head_dim = 6,
                   .ffn = 37,
                   .vocab = 301,
                   .context = 128});
}

// For plans: enough layers to share out, and sizes that divide badly.
inline planner::ModelSpec six_layer_model() {
  return llama_of({.n_layers = 6,
                   .hidden = 256,
                   .n_heads = 8,
                   .n_kv_heads = 2,
                   .head_dim = 32,
                   .ffn = 344,
                   .vocab = 2048,
                   .context = 1024});
}

// With every tensor a family can have: biases everywhere and norms on queries and keys.
inline planner::ModelSpec full_model() {
  planner::ModelSpec spec = small_model();
  spec.qkv_bias = spec.o_bias = spec.ffn_bias = spec.qk_norm = true;
  return spec;
}

// Stages that share the layers evenly, each of `tp` ranks, with weights in `dtype`.
inline planner::Plan even_plan(const planner::ModelSpec& spec, size_t n_stages, size_t tp,
                               DType dtype) {
  planner::Plan plan;
  plan.formats.weights = dtype;
  plan.replicas.resize(1);
  for (size_t i = 0; i < n_stages; ++i) {
    planner::Stage stage;
    stage.layers = {spec.n_layers * i / n_stages, spec.n_layers * (i + 1) / n_stages};
    stage.tp = tp;
    plan.replicas[0].stages.push_back(stage);
  }
  return plan;
}

inline planner::Limits small_limits(size_t max_sequences, size_t max_batch_tokens,
                                    size_t kv_blocks) {
  planner::Limits limits;
  limits.context = 512;
  limits.max_sequences = max_sequences;
  limits.max_batch_tokens = max_batch_tokens;
  limits.prefill_chunk = 32;
  limits.batches_in_flight = 2;
  limits.kv_blocks = kv_blocks;
  return limits;
}

}  // namespace weft::test
