#include "launch/plan_result.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "planner/counted.h"
#include "planner/memory_model.h"
#include "planner/problem_list.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace weft::launch {
namespace {

using planner::Candidate;
using planner::SearchRequest;
using planner::SearchResult;

// What would help where the limits can't be met, tried one by one.
struct Relief {
  std::string what;
  SearchRequest request;
};

std::vector<Relief> reliefs(const SearchRequest& request) {
  std::vector<Relief> all;
  const auto add = [&](std::string what, auto change) {
    Relief& relief = all.emplace_back(Relief{std::move(what), request});
    change(relief.request);
  };
  if (request.workload.max_gpus)
    add("without --max-gpus", [](SearchRequest& r) { r.workload.max_gpus.reset(); });
  for (const size_t times : {2, 4})
    add(fmt::format("with {} times the nodes", times), [&](SearchRequest& r) {
      for (planner::NodeClass& node : r.cluster.nodes) node.count *= times;
    });
  const size_t concurrency = request.workload.concurrency.value_or(1);
  for (const size_t part : {2, 8})
    if (concurrency >= 2 * part)
      add(fmt::format("with {} requests at once", concurrency / part),
          [&](SearchRequest& r) { r.workload.concurrency = concurrency / part; });
  return all;
}

std::string relief_text(const PlanCase& of) {
  std::string text;
  for (const Relief& relief : reliefs(of.request)) {
    if (!problems(relief.request.cluster).empty()) continue;
    const SearchResult found = search(relief.request, of.costs(), *of.serving);
    if (!found.found) continue;
    text += fmt::format("\n  - {}: {} on {} (TTFT {:.1f} ms, TPOT {:.2f} ms)", relief.what,
                        layout_text(found.best.layout), planner::counted(found.best.gpus, "GPU"),
                        found.best.served.ttft_ms, found.best.served.tpot_ms);
  }
  return text.empty() ? "" : "\nwhat would do:" + text;
}

[[noreturn]] void refuse_all(const PlanCase& of, const SearchResult& found) {
  constexpr size_t most_shown = 12;
  std::string text = found.verdict;
  for (size_t i = 0; i < std::min(found.refused.size(), most_shown); ++i) {
    const planner::Refusal& refusal = found.refused[i];
    text += fmt::format("\n  - {}: {}{}", refusal.layout, refusal.reason,
                        refusal.remedy.empty() ? "" : "; would do: " + refusal.remedy);
  }
  if (found.refused.size() > most_shown)
    text += fmt::format("\n  - … {} more", found.refused.size() - most_shown);
  throw Error(text + relief_text(of));
}

SearchResult predict_given(const PlanCase& of, const PlanOptions& options) {
  SearchResult result;
  const planner::Layout layout =
      options.layout ? parse_placed(*options.layout, of)
                     : place(planner::balanced_layout(of.request.model, options.tp.value_or(1),
                                                      options.pp.value_or(1)),
                             of);
  result.best = predict(of, layout, options);
  result.found = true;
  result.ranked = result.front = {result.best};
  result.verdict =
      fmt::format("{} was given: {}", layout_text(result.best.layout),
                  result.best.meets_limits ? "it meets the limits" : "it does not meet the limits");
  return result;
}

// Longer and shorter requests, larger and smaller batches, on the best's own stages.
std::optional<planner::ThroughputLaw> fit_law(const PlanCase& of, const Candidate& best) {
  std::vector<planner::ThroughputPoint> points;
  for (const double factor : {0.25, 0.5, 1.0, 2.0, 4.0}) {
    const PlanCase scaled = scaled_case(of, factor);
    const planner::Workload& work = scaled.request.workload;
    const size_t tokens = work.prompt_tokens + work.output_tokens;
    if (tokens > of.request.model.context || tokens < 8) continue;
    for (const size_t divisor : {4, 2, 1}) {
      Candidate at = best;
      at.layout.schedule.batch = std::max<size_t>(1, best.layout.schedule.batch / divisor);
      PlanOptions fixed;
      fixed.max_sequences = at.layout.schedule.batch;
      fixed.batches_in_flight =
          std::min(at.layout.schedule.batches_in_flight, *fixed.max_sequences);
      fixed.prefill_chunk = at.layout.schedule.prefill_chunk;
      try {
        at = predict(scaled, at.layout, fixed);
      } catch (const Error&) {
        continue;  // no room: no such point in the sweep
      }
      size_t blocks = planner::kMostClusterGpus * planner::kKvBlockTokens;
      for (const planner::StageFigures& stage : at.stages)
        blocks = std::min(blocks, stage.kv_blocks);
      const auto replicas = static_cast<double>(at.layout.n_replicas);
      points.push_back({static_cast<double>(tokens), static_cast<double>(*fixed.max_sequences),
                        static_cast<double>(blocks * planner::kKvBlockTokens),
                        at.tokens_per_s / replicas});
    }
  }
  const auto other_length = [&](const planner::ThroughputPoint& point) {
    return point.sequence_tokens != points.front().sequence_tokens;
  };
  if (std::none_of(points.begin(), points.end(), other_length)) return std::nullopt;
  return planner::fit_throughput_law(points);
}

std::vector<std::string> marks_of(const PlanCase& of, const planner::Plan& plan) {
  std::vector<std::string> marks;
  if (of.engine != "weft") marks.push_back(fmt::format("it is predicted for {}", of.engine));
  for (std::string& problem : problems(plan, of.request.model)) marks.push_back(std::move(problem));
  return marks;
}

// Names come from files: a line break in one would end the comment.
std::string comment(std::string text) {
  const auto is_break = [](char c) { return static_cast<unsigned char>(c) < 0x20; };
  std::replace_if(text.begin(), text.end(), is_break, ' ');
  return "# " + text + "\n";
}

// Before the plan itself: what it is for, what it promises, what can't be run.
std::string comments_of(const PlanCase& of, const PlanResult& result) {
  const planner::Workload& work = of.request.workload;
  const Candidate& best = result.search.best;
  const std::string requests =
      work.concurrency ? fmt::format("{} requests at once", *work.concurrency) : "as many as fit";
  std::string text = comment(fmt::format(
      "{} on {}, {}: {} prompt and {} output tokens, {}, for {}.", of.request.model.name,
      of.request.cluster.name, of.engine, work.prompt_tokens, work.output_tokens, requests,
      planner::kObjectiveNames[static_cast<size_t>(work.objective)]));
  text += comment(fmt::format("{}: TTFT {:.1f} ms, TPOT {:.2f} ms, {:.0f} tokens/s on {}{}.",
                              layout_text(best.layout), best.served.ttft_ms, best.served.tpot_ms,
                              best.tokens_per_s, planner::counted(best.gpus, "GPU"),
                              result.extrapolated ? " (extrapolated)" : ""));
  text += comment(result.search.verdict + ".");
  if (best.layout.n_replicas > 1)
    text += comment(fmt::format("One job runs one replica: start {} jobs of this plan.",
                                best.layout.n_replicas));
  for (const std::string& mark : result.not_executed) text += comment("Not executed yet: " + mark);
  return text;
}

}  // namespace

std::vector<planner::BytesPart> memory_of(const Candidate& candidate, size_t s) {
  const planner::StageFigures& stage = candidate.stages[s];
  std::vector<planner::BytesPart> parts = stage.fixed_parts;
  const size_t blocks = std::min(candidate.times.kv_blocks, stage.kv_blocks);
  parts.push_back({"KV", blocks * stage.kv_block_bytes});
  return parts;
}

size_t total_bytes(const std::vector<planner::BytesPart>& parts) {
  size_t total = 0;
  for (const planner::BytesPart& part : parts) total += part.bytes;
  return total;
}

size_t fullest_stage(const Candidate& candidate) {
  const auto share = [&](size_t s) {
    return static_cast<double>(total_bytes(memory_of(candidate, s))) /
           static_cast<double>(std::max<size_t>(1, candidate.stages[s].rank_memory_bytes));
  };
  size_t fullest = 0;
  for (size_t s = 1; s < candidate.stages.size(); ++s)
    if (share(s) > share(fullest)) fullest = s;
  return fullest;
}

PlanResult find_plan(const PlanCase& of, const PlanOptions& options) {
  PlanResult result;
  result.given = options.layout || options.tp || options.pp;
  result.search =
      result.given ? predict_given(of, options) : search(of.request, of.costs(), *of.serving);
  if (!result.search.found) refuse_all(of, result.search);
  const Candidate& best = result.search.best;
  result.extrapolated = is_extrapolated(of, best.layout);
  result.plan = plan_of(of.request, best, of.formats);
  if (of.on_cpu) predict_memory(of.request.model, result.plan);
  result.not_executed = marks_of(of, result.plan);
  result.law = fit_law(of, best);
  result.yaml = comments_of(of, result) + to_yaml(result.plan);
  return result;
}

}  // namespace weft::launch
