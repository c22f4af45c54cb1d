// A plan from a layout given by hand.
#include "planner/manual_plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>

#include "planner/memory_model.h"
#include "planner/plan_fields.h"
#include "planner/plan_messages.h"
#include "planner/problem_list.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace weft::planner {
namespace {

constexpr size_t kDefaultSequences = 64;
constexpr size_t kDefaultBatchTokens = 2048;
constexpr size_t kDefaultChunk = 512;

StageLayout parse_stage(std::string_view text, std::string_view part, size_t index) {
  const std::vector<std::string> sides = split(part, 'x');
  const std::string what = fmt::format("layout \"{}\", stage {} \"{}\"", text, index, part);
  if (sides.size() != 2)
    throw input_error("{}: write LAYERSxTP, as in 4x2 (4 layers on 2 ranks)", what);
  const StageLayout stage = {parse_count(sides[0], what + ": layers", kMostPlanLayers),
                             parse_count(sides[1], what + ": TP", kMostSlots)};
  if (stage.n_layers == 0) throw input_error("{}: a stage has at least one layer", what);
  if (stage.tp == 0) throw input_error("{}: a stage has at least one rank", what);
  return stage;
}

std::vector<Stage> make_stages(const std::vector<StageLayout>& layout, size_t gpus_per_node) {
  std::vector<Stage> stages;
  size_t next_layer = 0;
  size_t next_slot = 0;
  for (const StageLayout& wanted : layout) {
    Stage& stage = stages.emplace_back();
    stage.layers = {next_layer, next_layer + wanted.n_layers};
    stage.tp = wanted.tp;
    next_layer = stage.layers.end;
    for (size_t rank = 0; rank < wanted.tp; ++rank, ++next_slot)
      stage.slots.push_back({next_slot / gpus_per_node, next_slot % gpus_per_node});
  }
  return stages;
}

Limits make_limits(const ModelSpec& spec, const ManualOptions& options, size_t n_stages) {
  Limits limits;
  limits.context = options.context.value_or(spec.context);
  limits.max_sequences = options.max_sequences.value_or(kDefaultSequences);
  const size_t least_rows = std::max(kDefaultBatchTokens, options.prefill_chunk.value_or(0));
  limits.max_batch_tokens = options.max_batch_tokens.value_or(least_rows);
  limits.prefill_chunk =
      options.prefill_chunk.value_or(std::min(kDefaultChunk, limits.max_batch_tokens));
  limits.batches_in_flight = options.batches_in_flight.value_or(n_stages);
  const size_t all_contexts = limits.max_sequences * context_blocks(limits);
  limits.kv_blocks = options.kv_blocks.value_or(std::min(all_contexts, most_kv_blocks(limits)));
  return limits;
}

// KV blocks that fit on every stage beside everything else. A block also takes its place in
// messages and lists. Stages of an illegal tp are refused later and do not count here.
size_t blocks_that_fit(const ModelSpec& spec, Plan plan, const ManualOptions& options,
                       size_t rank_memory_bytes) {
  const auto bytes_with = [&](size_t n_blocks, size_t stage) {
    plan.limits.kv_blocks = n_blocks;
    return rank_memory(spec, plan, stage, options.backend).total();
  };
  size_t least = std::numeric_limits<size_t>::max();
  const std::vector<Stage>& stages = plan.replicas.front().stages;
  for (size_t s = 0; s < stages.size(); ++s) {
    if (!tp_problem(spec, stages[s].tp, false).empty()) continue;
    const size_t fixed = bytes_with(0, s);
    const size_t left = rank_memory_bytes > fixed ? rank_memory_bytes - fixed : 0;
    least = std::min(least, left / (bytes_with(1, s) - fixed));
  }
  return least;
}

// Blocks for all sequences at full context where they fit, else as many as do, with a tenth of the
// memory left free; but at least one context, for which an unset context is shortened.
void choose_blocks(const ModelSpec& spec, const ManualOptions& options, Plan& plan) {
  Limits& limits = plan.limits;
  const auto shorten_context = [&] {
    if (!options.context)
      limits.context = std::min(spec.context, limits.kv_blocks * kKvBlockTokens);
  };
  if (options.kv_blocks) return shorten_context();
  const size_t memory = options.rank_memory_bytes;
  const size_t one_context = context_blocks(limits);
  const size_t roomy = blocks_that_fit(spec, plan, options, memory - memory / 10);
  limits.kv_blocks = std::min(limits.kv_blocks, roomy);
  if (limits.kv_blocks >= one_context) return;
  limits.kv_blocks = one_context;
  const size_t fitting = blocks_that_fit(spec, plan, options, memory);
  if (options.context || fitting >= one_context) return;
  limits.kv_blocks = std::max<size_t>(1, fitting);
  shorten_context();
}

std::vector<std::string> option_problems(const ManualOptions& options,
                                         const std::vector<StageLayout>& layout) {
  std::vector<std::string> found;
  const auto within = [&](std::string_view key, const std::optional<size_t>& value) {
    for (const LimitField& limit : kLimitFields)
      if (limit.key == key && value && (*value < 1 || *value > limit.most))
        found.push_back(fmt::format("{} {} is not from 1 to {}", key, *value, limit.most));
  };
  within("context", options.context);
  within("max_sequences", options.max_sequences);
  within("max_batch_tokens", options.max_batch_tokens);
  within("prefill_chunk", options.prefill_chunk);
  within("batches_in_flight", options.batches_in_flight);
  within("kv_blocks", options.kv_blocks);
  if (options.gpus_per_node == 0) found.push_back("gpus_per_node 0: a node has at least one");
  size_t n_ranks = 0;
  for (const StageLayout& stage : layout) n_ranks += stage.tp;
  if (n_ranks > kMostSlots)
    found.push_back(
        fmt::format("the layout has {} ranks; at most {} are planned", n_ranks, kMostSlots));
  return found;
}

void append(std::vector<std::string>& to, std::vector<std::string> more) {
  to.insert(to.end(), std::make_move_iterator(more.begin()), std::make_move_iterator(more.end()));
}

}  // namespace

std::vector<StageLayout> parse_layout(std::string_view text) {
  std::vector<StageLayout> layout;
  for (const std::string& part : split(text, ','))
    layout.push_back(parse_stage(text, part, layout.size()));
  return layout;
}

std::vector<StageLayout> balanced_layout(const ModelSpec& spec, size_t tp, size_t pp) {
  if (pp == 0 || pp > spec.n_layers)
    throw input_error("PP {}: {} layers make 1 to {} stages", pp, spec.n_layers, spec.n_layers);
  std::vector<StageLayout> layout(pp, {spec.n_layers / pp, tp});
  for (size_t s = 0; s < spec.n_layers % pp; ++s) ++layout[s].n_layers;
  return layout;
}

Plan manual_plan(const ModelSpec& spec, const std::vector<StageLayout>& layout,
                 const ManualOptions& options) {
  refuse("model " + spec.name, problems(spec));
  refuse("plan", option_problems(options, layout));
  Plan plan;
  plan.model_name = spec.name;
  plan.facts_sha256 = facts_sha256(spec);
  plan.cluster = "manual";
  plan.formats = options.formats;
  plan.numerics = options.numerics;
  plan.limits = make_limits(spec, options, layout.size());
  plan.replicas.push_back({1, make_stages(layout, options.gpus_per_node)});
  std::vector<std::string> found;
  if (spec.n_experts == 0) choose_blocks(spec, options, plan);
  append(found, problems(plan, spec));
  append(found, memory_problems(spec, plan, options.rank_memory_bytes, options.backend));
  refuse("plan " + layout_text(plan), found);
  predict_memory(spec, plan, options.backend);
  return plan;
}

}  // namespace weft::planner
