// Facts of a model: everything planning, sharding and execution need to know, and nothing of files.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/dtype.h"

namespace weft::planner {

enum class RopeScaling { none, linear, llama3, yarn };

// Rotary position embedding. Fields that a scaling does not use keep their defaults.
struct RopeSpec {
  double theta = 10000.0;
  RopeScaling scaling = RopeScaling::none;
  double factor = 1.0;            // context stretch
  size_t original_context = 0;    // llama3, yarn: context of pre-training
  double low_freq_factor = 1.0;   // llama3
  double high_freq_factor = 4.0;  // llama3
  double beta_fast = 32.0;        // yarn
  double beta_slow = 1.0;         // yarn
  double attention_factor = 0.0;  // yarn: multiplies cos and sin; 0 = 0.1 ln(factor) + 1
  bool truncate = true;           // yarn: round the correction range to whole dimensions

  bool operator==(const RopeSpec&) const = default;
};

struct ModelSpec {
  std::string name;
  std::vector<std::string> aliases;  // names that others give it: "meta-llama/Llama-3.1-8B"
  std::string architecture;          // as config.json says it: "LlamaForCausalLM"
  size_t n_layers = 0;
  size_t hidden = 0;
  size_t n_heads = 0;
  size_t n_kv_heads = 0;
  size_t head_dim = 0;
  size_t ffn = 0;  // of a dense layer, or of one expert
  size_t vocab = 0;
  size_t context = 0;  // tokens
  RopeSpec rope;
  double norm_eps = 1e-6;
  bool tied_embeddings = false;
  bool qkv_bias = false;
  bool o_bias = false;
  bool ffn_bias = false;
  bool qk_norm = false;
  size_t sliding_window = 0;         // tokens a query sees, itself included; 0 = all
  size_t full_attention_layers = 0;  // with a window: so many first layers see everything
  size_t n_experts = 0;              // 0 = dense
  size_t experts_per_token = 0;
  DType dtype = DType::bf16;  // of the checkpoint's weights

  bool operator==(const ModelSpec&) const = default;
};

// Every rule the facts break, one sentence each ("n_heads 7 is no multiple of n_kv_heads 2").
std::vector<std::string> problems(const ModelSpec& spec);

// Number of parameters of the checkpoint (a tied head counted once).
size_t n_parameters(const ModelSpec& spec);

// Facts as YAML under configs/models/ (version 1; keys are the members' names, `rope` a map).
// Unknown keys, wrong kinds and broken rules throw Error with the file, line and column.
ModelSpec read_model_yaml(const std::string& path);
ModelSpec parse_model_yaml(std::string_view text, const std::string& where);
std::string to_yaml(const ModelSpec& spec);

// SHA-256 over canonical JSON (sorted keys, no spaces) of the facts without the names.
std::string facts_sha256(const ModelSpec& spec);

}  // namespace weft::planner
