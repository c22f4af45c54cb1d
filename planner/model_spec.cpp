// Rules, size and hash of a model's facts.
#include "planner/model_spec.h"

#include <fmt/format.h>

#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "planner/canonical_json.h"
#include "planner/model_fields.h"
#include "runtime/base/sha256.h"
#include "runtime/base/text.h"

namespace weft::planner {
namespace {

// Bounds that keep every product of sizes in 64 bits, far above any model there is.
constexpr size_t kMostLayers = 100'000;
constexpr size_t kMostHeads = 65'536;
constexpr size_t kMostWidth = size_t{1} << 24;
constexpr size_t kMostContext = size_t{1} << 30;
constexpr double kMostParameters = 1e14;

using Problems = std::vector<std::string>;

void check_sizes(const ModelSpec& spec, Problems& found) {
  const auto within = [&](const char* name, size_t value, size_t most) {
    if (value < 1 || value > most)
      found.push_back(fmt::format("{} {} is not from 1 to {}", name, value, most));
  };
  within("n_layers", spec.n_layers, kMostLayers);
  within("hidden", spec.hidden, kMostWidth);
  within("n_heads", spec.n_heads, kMostHeads);
  within("n_kv_heads", spec.n_kv_heads, kMostHeads);
  within("head_dim", spec.head_dim, 4096);
  within("ffn", spec.ffn, kMostWidth);
  within("vocab", spec.vocab, kMostWidth);
  within("context", spec.context, kMostContext);
}

void check_heads(const ModelSpec& spec, Problems& found) {
  if (spec.n_kv_heads != 0 && spec.n_heads % spec.n_kv_heads != 0)
    found.push_back(
        fmt::format("n_heads {} is no multiple of n_kv_heads {}", spec.n_heads, spec.n_kv_heads));
  if (spec.head_dim % 2 != 0)
    found.push_back(fmt::format("head_dim {} is odd: RoPE turns pairs", spec.head_dim));
}

void check_experts(const ModelSpec& spec, Problems& found) {
  if (spec.n_experts > kMostHeads)
    found.push_back(fmt::format("n_experts {} is above {}", spec.n_experts, kMostHeads));
  if (spec.n_experts == 0 && spec.experts_per_token != 0)
    found.push_back(
        fmt::format("experts_per_token {} in a model without n_experts", spec.experts_per_token));
  const bool chosen = spec.experts_per_token >= 1 && spec.experts_per_token <= spec.n_experts;
  if (spec.n_experts != 0 && !chosen)
    found.push_back(fmt::format("experts_per_token {} is not from 1 to n_experts {}",
                                spec.experts_per_token, spec.n_experts));
}

// In double: exact enough to bound a product that could overflow.
double rough_parameters(const ModelSpec& spec) {
  const double hidden = static_cast<double>(spec.hidden);
  const double heads = static_cast<double>(spec.n_heads + spec.n_kv_heads);
  const double experts = static_cast<double>(std::max<size_t>(1, spec.n_experts));
  const double layer = 2 * hidden * heads * static_cast<double>(spec.head_dim) +
                       3 * hidden * static_cast<double>(spec.ffn) * experts;
  return static_cast<double>(spec.n_layers) * layer + 2 * hidden * static_cast<double>(spec.vocab);
}

void check_rope(const RopeSpec& rope, Problems& found) {
  const auto positive = [&](const char* name, double value) {
    if (!(value > 0) || !std::isfinite(value))
      found.push_back(fmt::format("rope.{} {} is not a finite number above 0", name, value));
  };
  positive("theta", rope.theta);
  positive("factor", rope.factor);
  positive("low_freq_factor", rope.low_freq_factor);
  positive("high_freq_factor", rope.high_freq_factor);
  positive("beta_fast", rope.beta_fast);
  positive("beta_slow", rope.beta_slow);
  if (!(rope.attention_factor >= 0) || !std::isfinite(rope.attention_factor))
    found.push_back(
        fmt::format("rope.attention_factor {} is negative or not finite", rope.attention_factor));
  const bool needs_original =
      rope.scaling == RopeScaling::llama3 || rope.scaling == RopeScaling::yarn;
  if (needs_original && (rope.original_context < 1 || rope.original_context > kMostContext))
    found.push_back(fmt::format("rope.original_context {} is not from 1 to {}",
                                rope.original_context, kMostContext));
  if (rope.scaling == RopeScaling::llama3 && !(rope.low_freq_factor < rope.high_freq_factor))
    found.push_back(fmt::format("rope.low_freq_factor {} is not below high_freq_factor {}",
                                rope.low_freq_factor, rope.high_freq_factor));
}

void check_window(const ModelSpec& spec, Problems& found) {
  if (spec.full_attention_layers > spec.n_layers)
    found.push_back(fmt::format("full_attention_layers {} is above n_layers {}",
                                spec.full_attention_layers, spec.n_layers));
  if (spec.sliding_window == 0 && spec.full_attention_layers != 0)
    found.push_back(fmt::format("full_attention_layers {} in a model without sliding_window",
                                spec.full_attention_layers));
  if (spec.sliding_window > kMostContext)
    found.push_back(
        fmt::format("sliding_window {} is above {}", spec.sliding_window, kMostContext));
}

size_t attention_parameters(const ModelSpec& spec) {
  const size_t rows = (spec.n_heads + 2 * spec.n_kv_heads) * spec.head_dim;  // query, key, value
  size_t n = rows * spec.hidden + spec.n_heads * spec.head_dim * spec.hidden;
  if (spec.qkv_bias) n += rows;
  if (spec.o_bias) n += spec.hidden;
  if (spec.qk_norm) n += 2 * spec.head_dim;
  return n;
}

size_t ffn_parameters(const ModelSpec& spec) {
  size_t n = 3 * spec.hidden * spec.ffn;
  if (spec.ffn_bias) n += 2 * spec.ffn + spec.hidden;
  return spec.n_experts == 0 ? n : spec.n_experts * (n + spec.hidden);  // and the router's row
}

// One field's value as canonical JSON knows it.
nlohmann::json fact_json(size_t value) { return value; }
nlohmann::json fact_json(double value) { return value; }
nlohmann::json fact_json(bool value) { return value; }
nlohmann::json fact_json(const std::string& value) { return value; }
nlohmann::json fact_json(DType value) { return dtype_name(value); }
nlohmann::json fact_json(RopeScaling value) { return kScalingNames[static_cast<size_t>(value)]; }
nlohmann::json fact_json(const RopeSpec& rope) {
  nlohmann::json json;
  for_each_rope_field(rope,
                      [&](const char* key, const auto& value) { json[key] = fact_json(value); });
  return json;
}

void check_architecture(const ModelSpec& spec, Problems& found) {
  const std::string_view name = spec.architecture;
  if (std::find(std::begin(kArchitectures), std::end(kArchitectures), name) !=
      std::end(kArchitectures))
    return;
  found.push_back(fmt::format("architecture \"{}\" is none of {}{}", name,
                              fmt::join(kArchitectures, ", "), did_you_mean(name, kArchitectures)));
}

}  // namespace

std::vector<std::string> problems(const ModelSpec& spec) {
  Problems found;
  check_architecture(spec, found);
  check_sizes(spec, found);
  check_heads(spec, found);
  check_experts(spec, found);
  check_rope(spec.rope, found);
  check_window(spec, found);
  if (rough_parameters(spec) > kMostParameters)
    found.push_back(
        fmt::format("n_layers, hidden, ffn and vocab make {:.1e} parameters; at most "
                    "{:.0e} are planned",
                    rough_parameters(spec), kMostParameters));
  if (!(spec.norm_eps > 0 && spec.norm_eps < 1))
    found.push_back(fmt::format("norm_eps {} is not between 0 and 1", spec.norm_eps));
  if (std::find(std::begin(kFloatDTypes), std::end(kFloatDTypes), spec.dtype) ==
      std::end(kFloatDTypes))
    found.push_back(fmt::format("dtype {} is none of {}", dtype_name(spec.dtype),
                                fmt::join(kFloatDTypeNames, ", ")));
  return found;
}

size_t n_parameters(const ModelSpec& spec) {
  const size_t layer = attention_parameters(spec) + ffn_parameters(spec) + 2 * spec.hidden;
  const size_t tables = (spec.tied_embeddings ? 1 : 2) * spec.vocab * spec.hidden;
  return spec.n_layers * layer + tables + spec.hidden;
}

std::string facts_sha256(const ModelSpec& spec) {
  nlohmann::json json;
  for_each_fact(spec, [&](const char* key, const auto& value) { json[key] = fact_json(value); });
  json.erase("name");
  return sha256_hex(canonical_json(json));
}

}  // namespace weft::planner
