// Refusals and the verdict.
#include "planner/search_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "planner/counted.h"
#include "planner/layout_figures.h"
#include "planner/problem_list.h"
#include "planner/shard_shapes.h"

namespace weft::planner {
namespace {

constexpr size_t kWidestAsked = 64;

std::string family_name(const Space& space, const Family& family) {
  Layout layout = uniform_layout(space, family);
  return family_text(layout);
}

// Stages of the same kind with which one sequence fits; 0 where none do.
size_t stages_that_fit(const Space& space, const Capacities& most, size_t kind) {
  for (size_t p = 1; p <= std::min(space.most_stages, space.n_layers); ++p) {
    const Layout layout = uniform_layout(space, {kind, p});
    const bool fit =
        std::all_of(layout.stages.begin(), layout.stages.end(), [&](const PlacedStage& stage) {
          const size_t ends = (stage.shape.has_embedding ? kFirst : kMiddle) |
                              (stage.shape.has_head ? kLast : kMiddle);
          return stage.layers.size() <= most[kind * kEnds + ends];
        });
    if (fit) return p;
  }
  return 0;
}

std::string first_shortage(const Space& space, const StageCosts& costs, Layout layout,
                           const Schedule& schedule) {
  layout.schedule = schedule;
  const std::vector<std::string> found = memory_problems(space, memory_only(costs, layout));
  return found.empty() ? "" : found.front();
}

std::string remedy_for(const Space& space, size_t kind, size_t stages) {
  const size_t tp = space.kinds[kind].tp;
  if (stages == 0) return "a wider TP, a shorter context or smaller weights";
  const std::string name = family_name(space, {kind, stages});
  if (stages * tp > space.most_gpus)
    return fmt::format("{} on {}; there {} {}", name, counted(stages * tp, "GPU"),
                       space.most_gpus == 1 ? "is" : "are", space.most_gpus);
  return name;
}

// A family that has room for one sequence, but not for all that a replica is asked to hold.
void refuse_batch(const Space& space, StageTables& tables, const StageCosts& costs,
                  const Family& family, std::vector<Refusal>& refused) {
  Layout layout = uniform_layout(space, family);
  const size_t n = most_replicas(space, layout, space.most_replicas);
  if (n == 0 || space.concurrency == 0) return;
  layout.n_replicas = n;
  const size_t wanted = space.most_batch(n);
  size_t fitting = 0;
  for (size_t batch = 1; batch <= wanted; batch *= 2) {
    const Capacities& most = tables.most_capacities(space.kv_floor(batch, false));
    const size_t stages = stages_that_fit(space, most, family.kind);
    if (stages == 0 || stages > family.n_stages) break;
    fitting = batch;
  }
  if (fitting == 0 || fitting >= wanted) return;
  const Schedule schedule = {2 * fitting, 1, space.chunks.front()};
  const std::string shortage = first_shortage(space, costs, layout, schedule);
  if (shortage.empty()) return;
  refused.push_back({fmt::format("{}, batch {}", family_name(space, family), 2 * fitting), shortage,
                     fmt::format("a batch of {}: others wait", fitting)});
}

double ratio(double is, const std::optional<double>& limit) { return limit ? is / *limit : 0; }

std::string against(std::string_view what, double mine, double other, std::string_view unit) {
  return fmt::format("{} {:.4g}{} against {:.4g}{}", what, mine, unit, other, unit);
}

// The objective first, then where it comes from.
std::string difference(Objective objective, const Candidate& a, const Candidate& b) {
  std::string text;
  if (objective == Objective::latency)
    text = against("latency", a.latency_ms, b.latency_ms, " ms") + ": ";
  text += against("TTFT", a.served.ttft_ms, b.served.ttft_ms, " ms");
  text += ", " + against("TPOT", a.served.tpot_ms, b.served.tpot_ms, " ms");
  text += ", " + against("tokens/s", a.tokens_per_s, b.tokens_per_s, "");
  text += fmt::format(", {} against {}", counted(a.gpus, "GPU"), b.gpus);
  text += ", " +
          against("slowest stage decodes in", a.times.decode_max_ms, b.times.decode_max_ms, " ms");
  text += ", " + against("all stages in", a.times.decode_sum_ms, b.times.decode_sum_ms, " ms");
  return text;
}

std::string missed_text(const Workload& workload, const Candidate& closest) {
  std::string text;
  const auto miss = [&](std::string_view name, double is, const std::optional<double>& limit) {
    if (!limit || is <= *limit) return;
    text += fmt::format("{}{} {:.1f} ms against a limit of {:.1f} ({:.2f} times)",
                        text.empty() ? "" : ", ", name, is, *limit, is / *limit);
  };
  miss("TTFT", closest.served.ttft_ms, workload.slo_ttft_ms);
  miss("TPOT", closest.served.tpot_ms, workload.slo_tpot_ms);
  if (text.empty() && closest.served.saturated)
    text = fmt::format("it holds {:.1f} requests a replica at once, not all that are asked",
                       closest.served.concurrency);
  return text;
}

}  // namespace

void refuse_widths(const SearchRequest& request, const Space& space,
                   std::vector<Refusal>& refused) {
  std::set<size_t> asked;
  size_t largest_node = 0;
  for (size_t tp = 2; tp <= kWidestAsked; tp *= 2) asked.insert(tp);
  for (const NodeClass& node : space.nodes) asked.insert(node.gpus);
  for (const NodeClass& node : space.nodes) largest_node = std::max(largest_node, node.gpus);
  for (const size_t tp : legal_tp(request.model)) asked.insert(tp);
  for (const size_t tp : asked) {
    const std::string problem = tp_problem(request.model, tp, request.invariant);
    const std::string name = fmt::format("TP {}", tp);
    if (std::find(space.widths.begin(), space.widths.end(), tp) != space.widths.end()) continue;
    if (problem.starts_with(name + ": "))
      refused.push_back({name, problem.substr(name.size() + 2), ""});
    else if (problem.starts_with(name + " "))
      refused.push_back({name, problem.substr(name.size() + 1), ""});
    else if (tp > space.most_gpus)
      refused.push_back({name, fmt::format("{} may be used", counted(space.most_gpus, "GPU")), ""});
    else
      refused.push_back({name, fmt::format("a node has at most {}", counted(largest_node, "GPU")),
                         request.tp_across_nodes ? "" : "TP across nodes, when asked for"});
  }
}

void refuse_memory(const Space& space, StageTables& tables, const StageCosts& costs,
                   std::vector<Refusal>& refused) {
  const Capacities& most = tables.most_capacities(space.kv_floor(1, false));
  const Schedule least = {1, 1, space.chunks.front()};
  for (size_t kind = 0; kind < space.kinds.size(); ++kind) {
    if (space.kinds[kind].ep > 1) continue;
    const size_t fitting = stages_that_fit(space, most, kind);
    const size_t last = std::min(space.most_stages, space.n_layers);
    const size_t n_short = fitting == 0 ? last : fitting - 1;
    // Of many that are short the first and the last say enough.
    for (const size_t p : std::set<size_t>{1, n_short}) {
      if (p == 0 || p > n_short) continue;
      const Layout layout = uniform_layout(space, {kind, p});
      const std::string shortage = first_shortage(space, costs, layout, least);
      if (!shortage.empty())
        refused.push_back(
            {family_name(space, {kind, p}), shortage, remedy_for(space, kind, fitting)});
    }
    if (fitting > 0 && fitting * space.kinds[kind].tp <= space.most_gpus)
      refuse_batch(space, tables, costs, {kind, fitting}, refused);
  }
}

void refuse_slow(const Scorer& scorer, const Workload& workload,
                 const std::vector<SweptLayout>& closest, std::vector<Refusal>& refused) {
  for (const SweptLayout& swept : closest) {
    if (scorer.meets_limits(swept.served)) continue;
    const double ttft = ratio(swept.served.ttft_ms, workload.slo_ttft_ms);
    const double tpot = ratio(swept.served.tpot_ms, workload.slo_tpot_ms);
    const bool by_ttft = ttft >= tpot;
    std::string reason = "saturated";
    if (std::max(ttft, tpot) > 1)
      reason = fmt::format("{} {:.1f} ms, limit {:.1f}", by_ttft ? "TTFT" : "TPOT",
                           by_ttft ? swept.served.ttft_ms : swept.served.tpot_ms,
                           by_ttft ? *workload.slo_ttft_ms : *workload.slo_tpot_ms);
    refused.push_back(
        {fmt::format("{}, {} replica{}", family_text(swept.layout), swept.layout.n_replicas,
                     swept.layout.n_replicas == 1 ? "" : "s"),
         reason, fmt::format("a limit {:.2f} times as long", std::max(ttft, tpot))});
  }
}

std::string verdict_text(const Workload& workload, const SearchResult& result) {
  if (result.best.layout.stages.empty())
    return "no layout fits this cluster's memory: see what was refused, and what would make it fit";
  const std::string winner = layout_text(result.best.layout);
  if (!result.found)
    return fmt::format("no layout meets the limits; {} comes closest: {}", winner,
                       missed_text(workload, result.best));
  if (result.ranked.size() < 2) return fmt::format("{}: nothing else fits", winner);
  const Candidate& next = result.ranked[1];
  return fmt::format("{} beats {}: {}", winner, layout_text(next.layout),
                     difference(workload.objective, result.best, next));
}

}  // namespace weft::planner
