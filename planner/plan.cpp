// Size, text and legality of a plan.
#include "planner/plan.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <set>

#include "planner/model_fields.h"
#include "planner/plan_fields.h"
#include "planner/plan_messages.h"

namespace weft::planner {
namespace {

using Problems = std::vector<std::string>;

size_t n_ranks(const Replica& replica) {
  size_t n = 0;
  for (const Stage& stage : replica.stages) n += stage.tp * stage.dp;
  return n;
}

void check_model(const Plan& plan, const ModelSpec& spec, Problems& found) {
  const std::string facts = facts_sha256(spec);
  if (plan.facts_sha256 != facts)
    found.push_back(
        fmt::format("the plan is for model {} (facts {:.12}…), this model is {} (facts {:.12}…)",
                    plan.model_name, plan.facts_sha256, spec.name, facts));
  if (spec.n_experts != 0)
    found.push_back(fmt::format("model {} has {} experts: mixtures of experts are not executed yet",
                                spec.name, spec.n_experts));
}

void check_formats(const Formats& formats, Problems& found) {
  for (const FormatField& format : kFormatFields) {
    const DType dtype = formats.*format.field;
    if (!is_float(dtype))
      found.push_back(fmt::format("formats: {} {} is not executed yet; use {}", format.key,
                                  dtype_name(dtype), fmt::join(kFloatDTypeNames, ", ")));
  }
}

// Each limit alone; whether all are within their ranges.
bool check_ranges(const Limits& limits, Problems& found) {
  const size_t n_before = found.size();
  for (const LimitField& limit : kLimitFields) {
    const size_t value = limits.*limit.field;
    if (value < 1 || value > limit.most)
      found.push_back(
          fmt::format("limits: {} {} is not from 1 to {}", limit.key, value, limit.most));
  }
  return found.size() == n_before;
}

void check_limits(const Limits& limits, const ModelSpec& spec, Problems& found) {
  if (check_ranges(limits, found) && batch_bytes(limits) > kMostMessageBytes)
    found.push_back(fmt::format(
        "limits: kv_blocks {} make a batch of up to {} bytes, and a message has at most "
        "{}: use at most {} blocks, or fewer max_sequences ({}) or less context ({})",
        limits.kv_blocks, batch_bytes(limits), kMostMessageBytes, most_kv_blocks(limits),
        limits.max_sequences, limits.context));
  if (limits.context > spec.context)
    found.push_back(
        fmt::format("limits: context {} is beyond the model's {}", limits.context, spec.context));
  if (limits.prefill_chunk > limits.max_batch_tokens)
    found.push_back(fmt::format("limits: prefill_chunk {} is above max_batch_tokens {}",
                                limits.prefill_chunk, limits.max_batch_tokens));
  // Divided, so that no value overflows.
  if (limits.context > 0 && limits.kv_blocks <= (limits.context - 1) / kKvBlockTokens)
    found.push_back(fmt::format("limits: kv_blocks {} hold {} tokens, less than one context of {}",
                                limits.kv_blocks, limits.kv_blocks * kKvBlockTokens,
                                limits.context));
  if (!std::is_sorted(limits.graph_buckets.begin(), limits.graph_buckets.end()))
    found.push_back("limits: graph_buckets do not ascend");
}

// Layers that no stage has or two have. Stages follow each other in the model's order; a group that
// decodes alone begins anew.
void check_layers(const Replica& replica, size_t n_layers, Problems& found) {
  size_t next = 0;  // first layer that no stage so far has
  for (size_t s = 0; s < replica.stages.size(); ++s) {
    const Range layers = replica.stages[s].layers;
    const bool new_group = s > 0 && replica.stages[s - 1].role != replica.stages[s].role;
    if (new_group && next == n_layers) next = 0;
    if (layers.begin >= layers.end) {
      found.push_back(
          fmt::format("stage {}: layers [{}, {}) are none", s, layers.begin, layers.end));
      continue;
    }
    if (layers.begin > next)
      found.push_back(
          fmt::format("layers [{}, {}) are in no stage (before stage {})", next, layers.begin, s));
    if (layers.begin < next)
      found.push_back(fmt::format("layers [{}, {}) of stage {} are in an earlier stage too",
                                  layers.begin, std::min(next, layers.end), s));
    next = std::max(next, layers.end);
  }
  if (next < n_layers)
    found.push_back(
        fmt::format("layers [{}, {}) are in no stage: the last ends at {}, the model has {} layers",
                    next, n_layers, next, n_layers));
  if (next > n_layers)
    found.push_back(fmt::format("the stages have {} layers, the model has {}", next, n_layers));
}

// Stages of the same illegal width share one sentence: it has the list of legal values.
void check_widths(const Replica& replica, const ModelSpec& spec, bool invariant, Problems& found) {
  std::map<size_t, std::vector<size_t>> stages_of;
  for (size_t s = 0; s < replica.stages.size(); ++s) stages_of[replica.stages[s].tp].push_back(s);
  for (const auto& [tp, stages] : stages_of) {
    const std::string why = tp_problem(spec, tp, invariant);
    if (why.empty()) continue;
    const std::string others =
        stages.size() == 1 ? "" : fmt::format(" and {} more", stages.size() - 1);
    found.push_back(fmt::format("stage {}{}: {}", stages.front(), others, why));
  }
}

void check_roles(const Replica& replica, Problems& found) {
  for (size_t s = 0; s < replica.stages.size(); ++s) {
    const Stage& stage = replica.stages[s];
    if (stage.role != Role::both)
      found.push_back(fmt::format("stage {}: role {} is not executed yet; use both", s,
                                  kRoleNames[static_cast<size_t>(stage.role)]));
    if (stage.dp != 1)
      found.push_back(fmt::format("stage {}: dp {} is not executed yet; use 1", s, stage.dp));
    if (stage.ep != 1)
      found.push_back(fmt::format("stage {}: ep {} is not executed yet; use 1", s, stage.ep));
  }
}

void check_slots(const Replica& replica, Problems& found) {
  std::set<std::pair<size_t, size_t>> taken;
  for (size_t s = 0; s < replica.stages.size(); ++s) {
    const Stage& stage = replica.stages[s];
    if (stage.slots.size() != stage.tp * stage.dp)
      found.push_back(fmt::format("stage {}: {} slots for tp {} x dp {}", s, stage.slots.size(),
                                  stage.tp, stage.dp));
    for (const Slot& slot : stage.slots)
      if (!taken.insert({slot.node, slot.gpu}).second)
        found.push_back(
            fmt::format("stage {}: slot node {} gpu {} is taken twice", s, slot.node, slot.gpu));
  }
}

}  // namespace

size_t world_size(const Plan& plan) {
  return plan.replicas.empty() ? 0 : n_ranks(plan.replicas.front());
}

std::string layout_text(const Plan& plan) {
  std::string text;
  if (plan.replicas.empty()) return text;
  for (const Stage& stage : plan.replicas.front().stages)
    text += fmt::format("{}{}x{}", text.empty() ? "" : ",", stage.layers.size(), stage.tp);
  return text;
}

std::vector<std::string> problems(const Plan& plan, const ModelSpec& spec) {
  Problems found;
  check_model(plan, spec, found);
  check_formats(plan.formats, found);
  check_limits(plan.limits, spec, found);
  if (plan.replicas.size() != 1) {
    found.push_back(
        fmt::format("{} kinds of replica: exactly one is executed", plan.replicas.size()));
    return found;
  }
  const Replica& replica = plan.replicas.front();
  if (replica.count == 0) found.push_back("replica: count 0");
  check_layers(replica, spec.n_layers, found);
  check_widths(replica, spec, plan.numerics == Numerics::invariant, found);
  check_roles(replica, found);
  check_slots(replica, found);
  const size_t n_predicted = plan.predicted.rank_memory.size();
  if (n_predicted != 0 && n_predicted != replica.stages.size())
    found.push_back(fmt::format("predicted: rank_memory has {} entries for {} stages", n_predicted,
                                replica.stages.size()));
  if (plan.predicted.speed && plan.predicted.speed->stages.size() != replica.stages.size())
    found.push_back(fmt::format("predicted: stages has {} entries for {} stages",
                                plan.predicted.speed->stages.size(), replica.stages.size()));
  return found;
}

}  // namespace weft::planner
