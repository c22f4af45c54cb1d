// Facts of small models with awkward sizes, for tests.
#pragma once

#include "planner/plan.h"

namespace weft::test {

// Grouped-query attention; an FFN of 37 that is padded whatever the layout; a vocabulary of 301.
inline planner::ModelSpec small_model() {
  planner::ModelSpec spec;
  spec.name = "small";
  spec.architecture = "LlamaForCausalLM";
  spec.n_layers = 3;
  spec.hidden = 24;
  spec.n_heads = 8;
  spec.n_kv_heads = 2;
  spec.head_dim = 6;
  spec.ffn = 37;
  spec.vocab = 301;
  spec.context = 128;
  return spec;
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

}  // namespace weft::test
