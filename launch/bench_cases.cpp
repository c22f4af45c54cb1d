// Bytes and operations counted from the facts alone: every weight once, every cached key and
// value once.
#include "launch/bench_cases.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>

#include "planner/catalog.h"
#include "planner/memory_model.h"
#include "planner/step_cost.h"
#include "planner/unknown_name.h"

namespace weft::launch {
namespace {

double layer_weights(const planner::ModelSpec& spec) {
  const auto qkv = static_cast<double>((spec.n_heads + 2 * spec.n_kv_heads) * spec.head_dim);
  const auto attended = static_cast<double>(spec.n_heads * spec.head_dim);
  const auto hidden = static_cast<double>(spec.hidden);
  return hidden * (qkv + attended + 3 * static_cast<double>(spec.ffn));
}

double head_weights(const planner::ModelSpec& spec) {
  return static_cast<double>(spec.vocab) * static_cast<double>(spec.hidden);
}

std::string lower(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return text;
}

}  // namespace

std::string StepCase::name() const {
  return prefill ? fmt::format("prefill {}, batch {}", tokens, batch)
                 : fmt::format("decode batch {}, context {}", batch, tokens);
}

std::string memory_text(const MemoryUse& use) {
  using planner::gib_text;
  const planner::MemoryParts& parts = use.planned;
  const std::string ranks = use.n_ranks == 1 ? "" : fmt::format("{} ranks of ", use.n_ranks);
  return fmt::format(
      "memory: {} GiB in use at most, {} GiB planned ({}weights {} + KV {} + activations {} + "
      "buffers {} + CUDA {}), ratio {:.3f}",
      gib_text(use.peak_bytes), gib_text(use.planned_bytes()), ranks, gib_text(parts.weights),
      gib_text(parts.kv), gib_text(parts.activations), gib_text(parts.buffers),
      gib_text(use.reserved_bytes), use.ratio());
}

double step_bytes(const planner::ModelSpec& spec, const planner::Formats& formats,
                  const StepCase& of) {
  const auto layers = static_cast<double>(spec.n_layers);
  const double weights = layers * layer_weights(spec) + head_weights(spec);
  const double pair = static_cast<double>(dtype_bytes(formats.kv_key)) +
                      static_cast<double>(dtype_bytes(formats.kv_value));
  const double kv_token = layers * static_cast<double>(spec.n_kv_heads * spec.head_dim) * pair;
  return weights * static_cast<double>(dtype_bytes(formats.weights)) +
         kv_token * static_cast<double>(of.batch * of.tokens);
}

double step_flops(const planner::ModelSpec& spec, const StepCase& of) {
  const auto layers = static_cast<double>(spec.n_layers);
  const auto batch = static_cast<double>(of.batch), tokens = static_cast<double>(of.tokens);
  const double rows = of.prefill ? batch * tokens : batch;
  const double pairs = of.prefill ? batch * tokens * (tokens + 1) / 2 : batch * tokens;
  const double attention = 4 * pairs * static_cast<double>(spec.n_heads * spec.head_dim) * layers;
  return 2 * rows * layers * layer_weights(spec) + 2 * batch * head_weights(spec) + attention;
}

double step_limit_ms(const planner::ModelSpec& spec, const planner::Formats& formats,
                     const StepCase& of, const Ceilings& ceilings) {
  const double reading = step_bytes(spec, formats, of) / ceilings.read_bytes_per_s;
  const double computing =
      ceilings.flops_per_s > 0 ? step_flops(spec, of) / ceilings.flops_per_s : 0;
  return std::max(reading, computing) * 1e3;
}

std::string profile_name(const std::string& gpu) {
  std::string name = lower(gpu);
  if (name.starts_with("nvidia ")) name = name.substr(7);
  return name;
}

std::optional<double> predicted_step_ms(const planner::ModelSpec& spec, const StepCase& of,
                                        const std::string& gpu, const std::string& configs) {
  planner::Catalog catalog(configs);
  try {
    planner::StepSetting setting;
    setting.model = &spec;
    setting.machine = &catalog.machine(profile_name(gpu));
    setting.engine = &catalog.engine("weft");
    planner::StageShape shape;
    shape.n_layers = spec.n_layers;
    shape.has_embedding = shape.has_head = true;
    const auto context = static_cast<double>(of.tokens);
    return of.prefill ? prefill_step(setting, shape, of.tokens, 0).total_ms()
                      : decode_step(setting, shape, of.batch, context).total_ms();
  } catch (const planner::UnknownName&) {
    return std::nullopt;  // a GPU without a profile
  }
}

}  // namespace weft::launch
