// The facts' fields by name, once: YAML reading, YAML writing and the canonical JSON walk this
// list.
#pragma once

#include <string_view>

#include "planner/model_spec.h"

namespace weft::planner {

inline constexpr std::string_view kScalingNames[] = {"none", "linear", "llama3", "yarn"};

// Weights, activations and KV planes; the order is that of kFloatDTypes.
inline constexpr std::string_view kFloatDTypeNames[] = {"bf16", "f16", "f32"};
inline constexpr DType kFloatDTypes[] = {DType::bf16, DType::f16, DType::f32};
// What a plan may name beside them, in the order of kPlanDTypes: searched for, not executed yet.
inline constexpr std::string_view kPlanDTypeNames[] = {"bf16", "f16", "f32", "fp8", "int8", "int4"};
inline constexpr DType kPlanDTypes[] = {DType::bf16, DType::f16,  DType::f32,
                                        DType::fp8,  DType::int8, DType::int4};
inline bool is_float(DType dtype) {
  return dtype == DType::bf16 || dtype == DType::f16 || dtype == DType::f32;
}

// Whose decoder layers weft has, or can plan for (mixtures of experts).
inline constexpr std::string_view kArchitectures[] = {"LlamaForCausalLM",   "MistralForCausalLM",
                                                      "Qwen2ForCausalLM",   "Qwen3ForCausalLM",
                                                      "MixtralForCausalLM", "Qwen3MoeForCausalLM"};

// Fields that a file must have; the others keep their defaults where they are not written.
inline constexpr std::string_view kRequiredFacts[] = {
    "name", "architecture", "n_layers", "hidden", "n_heads",  "n_kv_heads", "head_dim",
    "ffn",  "vocab",        "context",  "rope",   "norm_eps", "dtype"};

template <class Rope, class F>
void for_each_rope_field(Rope& rope, F&& f) {
  f("theta", rope.theta);
  f("scaling", rope.scaling);
  f("factor", rope.factor);
  f("original_context", rope.original_context);
  f("low_freq_factor", rope.low_freq_factor);
  f("high_freq_factor", rope.high_freq_factor);
  f("beta_fast", rope.beta_fast);
  f("beta_slow", rope.beta_slow);
  f("attention_factor", rope.attention_factor);
  f("truncate", rope.truncate);
}

template <class Spec, class F>
void for_each_fact(Spec& spec, F&& f) {
  f("name", spec.name);
  f("architecture", spec.architecture);
  f("n_layers", spec.n_layers);
  f("hidden", spec.hidden);
  f("n_heads", spec.n_heads);
  f("n_kv_heads", spec.n_kv_heads);
  f("head_dim", spec.head_dim);
  f("ffn", spec.ffn);
  f("vocab", spec.vocab);
  f("context", spec.context);
  f("rope", spec.rope);
  f("norm_eps", spec.norm_eps);
  f("tied_embeddings", spec.tied_embeddings);
  f("qkv_bias", spec.qkv_bias);
  f("o_bias", spec.o_bias);
  f("ffn_bias", spec.ffn_bias);
  f("qk_norm", spec.qk_norm);
  f("sliding_window", spec.sliding_window);
  f("full_attention_layers", spec.full_attention_layers);
  f("n_experts", spec.n_experts);
  f("experts_per_token", spec.experts_per_token);
  f("dtype", spec.dtype);
}

}  // namespace weft::planner
