// The rotary-embedding part of config.json.
#include "runtime/hf_rope_config.h"

#include <cmath>

#include "runtime/base/error.h"

namespace weft::runtime {
namespace {

using planner::RopeScaling;
using planner::RopeSpec;

constexpr size_t kMostContext = size_t{1} << 30;
constexpr double kMostFactor = 1e6;

// YaRN's growth of the attention temperature with the stretch (Peng et al., 2023), scaled.
double yarn_mscale(double factor, double mscale) {
  return factor <= 1 ? 1.0 : 0.1 * mscale * std::log(factor) + 1.0;
}

size_t original_context(const JsonFields& config, const JsonFields& scaling, size_t context) {
  constexpr const char* kKey = "original_max_position_embeddings";
  if (const auto inner = scaling.count(kKey, 1, kMostContext)) return *inner;
  return config.count(kKey, 1, kMostContext).value_or(context);
}

void read_llama3(const JsonFields& scaling, RopeSpec& rope) {
  rope.scaling = RopeScaling::llama3;
  rope.factor = scaling.required_number("factor", 1, kMostFactor);
  rope.low_freq_factor = scaling.required_number("low_freq_factor", 1e-6, kMostFactor);
  rope.high_freq_factor = scaling.required_number("high_freq_factor", 1e-6, kMostFactor);
  if (rope.high_freq_factor <= rope.low_freq_factor)
    scaling.refuse("high_freq_factor", "must be greater than low_freq_factor");
}

void read_yarn(const JsonFields& scaling, size_t context, RopeSpec& rope) {
  rope.scaling = RopeScaling::yarn;
  const double stretch = static_cast<double>(context) / static_cast<double>(rope.original_context);
  rope.factor = scaling.number("factor", 1e-3, kMostFactor).value_or(stretch);
  const double fast = scaling.number("beta_fast", 0, kMostFactor).value_or(0);
  const double slow = scaling.number("beta_slow", 0, kMostFactor).value_or(0);
  if (fast > 0) rope.beta_fast = fast;  // 0 means the default, as in transformers
  if (slow > 0) rope.beta_slow = slow;
  rope.truncate = scaling.flag("truncate").value_or(true);
  const double mscale = scaling.number("mscale", 0, kMostFactor).value_or(0);
  const double mscale_all_dim = scaling.number("mscale_all_dim", 0, kMostFactor).value_or(0);
  if (const auto given = scaling.number("attention_factor", 1e-6, kMostFactor))
    rope.attention_factor = *given;
  else if (mscale > 0 && mscale_all_dim > 0)
    rope.attention_factor =
        yarn_mscale(rope.factor, mscale) / yarn_mscale(rope.factor, mscale_all_dim);
}

void read_scaling(const JsonFields& config, const JsonFields& scaling, size_t context,
                  RopeSpec& rope) {
  const char* key = scaling.contains("rope_type") ? "rope_type" : "type";
  const std::string type = scaling.text(key).value_or("default");
  if (type == "default") return;
  if (type == "linear") {
    rope.scaling = RopeScaling::linear;
    rope.factor = scaling.required_number("factor", 1e-3, kMostFactor);
    return;
  }
  if (type != "llama3" && type != "yarn")
    return scaling.refuse(key, "supported are default, linear, llama3 and yarn");
  rope.original_context = original_context(config, scaling, context);
  if (rope.original_context == 0) return;  // max_position_embeddings is missing, and said so
  if (type == "llama3") return read_llama3(scaling, rope);
  read_yarn(scaling, context, rope);
}

}  // namespace

RopeSpec read_rope(const JsonFields& config, double default_theta, size_t context,
                   std::vector<std::string>& wrong) {
  RopeSpec rope;
  rope.theta = config.number("rope_theta", 1e-3, 1e15).value_or(default_theta);
  const char* key = config.find("rope_scaling") != nullptr ? "rope_scaling" : "rope_parameters";
  const nlohmann::json* found = config.find(key);
  if (found == nullptr || found->empty()) return rope;
  if (!found->is_object()) {
    config.refuse(key, "must be an object");
    return rope;
  }
  const JsonFields scaling(*found, fmt::format("{}.", key), wrong);
  rope.theta = scaling.number("rope_theta", 1e-3, 1e15).value_or(rope.theta);
  for (const auto& [name, value] : found->items())
    if (value.is_object()) scaling.refuse(name.c_str(), "one RoPE for all layers is supported");
  if (scaling.number("partial_rotary_factor", 0, 1).value_or(1) != 1)
    scaling.refuse("partial_rotary_factor", "only whole heads are rotated here: 1 is supported");
  read_scaling(config, scaling, context, rope);
  return rope;
}

nlohmann::json rope_scaling_json(const RopeSpec& rope) {
  if (rope.scaling == RopeScaling::none) return nullptr;
  nlohmann::json json = {{"factor", rope.factor}};
  if (rope.scaling == RopeScaling::linear) {
    json["type"] = json["rope_type"] = "linear";
    return json;
  }
  json["original_max_position_embeddings"] = rope.original_context;
  if (rope.scaling == RopeScaling::llama3) {
    json["rope_type"] = "llama3";
    json["low_freq_factor"] = rope.low_freq_factor;
    json["high_freq_factor"] = rope.high_freq_factor;
    return json;
  }
  json["rope_type"] = "yarn";
  json["beta_fast"] = rope.beta_fast;
  json["beta_slow"] = rope.beta_slow;
  json["truncate"] = rope.truncate;
  if (rope.attention_factor > 0) json["attention_factor"] = rope.attention_factor;
  return json;
}

}  // namespace weft::runtime
