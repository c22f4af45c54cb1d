// Table and JSON of a plan.
#include "launch/plan_report.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "planner/memory_model.h"
#include "planner/plan_fields.h"
#include "planner/plan_json.h"
#include "runtime/base/text.h"

namespace weft::launch {
namespace {

using planner::MemoryField;
using planner::MemoryParts;
using planner::Plan;

std::string formats_text(const planner::Formats& formats) {
  return fmt::format("weights {}, activations {}, KV {}/{}", dtype_name(formats.weights),
                     dtype_name(formats.activations), dtype_name(formats.kv_key),
                     dtype_name(formats.kv_value));
}

std::string limits_text(const planner::Limits& limits, size_t model_context) {
  const std::string shortened = limits.context < model_context
                                    ? fmt::format(" of the model's {}", model_context)
                                    : std::string();
  return fmt::format(
      "context {}{}, {} sequences, batches of {} tokens ({} of a prompt), {} in flight, {} KV "
      "blocks "
      "({} tokens)",
      limits.context, shortened, limits.max_sequences, limits.max_batch_tokens,
      limits.prefill_chunk, limits.batches_in_flight, limits.kv_blocks,
      limits.kv_blocks * planner::kKvBlockTokens);
}

std::string stage_row(size_t index, const planner::Stage& stage, size_t first_rank,
                      const MemoryParts& memory) {
  const std::string layers = fmt::format("{}-{}", stage.layers.begin, stage.layers.end - 1);
  const std::string ranks = fmt::format("{}-{}", first_rank, first_rank + stage.slots.size() - 1);
  std::string row = fmt::format("{:>5}  {:>9}  {:>3}  {:>9}", index, layers, stage.tp, ranks);
  for (const MemoryField& part : planner::kMemoryFields)
    row += fmt::format("  {:>11}", planner::gib_text(memory.*part.field));
  return row + fmt::format("  {:>8}\n", planner::gib_text(memory.total()));
}

}  // namespace

std::string plan_table(const Plan& plan, const planner::ModelSpec& spec,
                       const std::string& memory_note) {
  std::string text =
      fmt::format("{}: {} parameters, layout {}, {} ranks, {} numerics\n", spec.name,
                  human_count(n_parameters(spec)), layout_text(plan), world_size(plan),
                  planner::kNumericsNames[static_cast<size_t>(plan.numerics)]);
  text += formats_text(plan.formats) + "\n" + limits_text(plan.limits, spec.context) + "\n";
  text += fmt::format("GiB of one rank; {}\n", memory_note);
  text += fmt::format("{:>5}  {:>9}  {:>3}  {:>9}", "stage", "layers", "TP", "ranks");
  for (const MemoryField& part : planner::kMemoryFields)
    text += fmt::format("  {:>11}", part.title);
  text += fmt::format("  {:>8}\n", "total");
  const std::vector<planner::Stage>& stages = plan.replicas.front().stages;
  size_t first_rank = 0;
  for (size_t s = 0; s < stages.size(); ++s) {
    text += stage_row(s, stages[s], first_rank, plan.predicted.rank_memory[s]);
    first_rank += stages[s].slots.size();
  }
  return text;
}

std::string plan_json(const Plan& plan) {
  using nlohmann::json;
  json memory = json::array();
  for (const MemoryParts& parts : plan.predicted.rank_memory) {
    json stage = {{"stage", memory.size()}, {"total", parts.total()}};
    for (const MemoryField& part : planner::kMemoryFields) stage[part.key] = parts.*part.field;
    memory.push_back(std::move(stage));
  }
  const json object = {{"layout", layout_text(plan)},
                       {"memory", std::move(memory)},
                       {"plan", json::parse(to_json(plan, planner::WithPredicted::yes))},
                       {"plan_sha256", plan_sha256(plan)},
                       {"world_size", world_size(plan)}};
  return object.dump() + "\n";
}

}  // namespace weft::launch
