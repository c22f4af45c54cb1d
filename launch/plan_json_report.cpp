#include "launch/plan_json_report.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "launch/plan_breakdown.h"
#include "launch/plan_ranking.h"
#include "planner/plan_fields.h"
#include "planner/plan_json.h"
#include "planner/search_report.h"

namespace weft::launch {
namespace {

using nlohmann::json;
using planner::Candidate;

json finite(double value) { return std::isfinite(value) ? json(value) : json(nullptr); }

json memory_json(const Candidate& layout) {
  json stages = json::array();
  for (size_t s = 0; s < layout.stages.size(); ++s) {
    const std::vector<planner::BytesPart> parts = memory_of(layout, s);
    json stage = {
        {"stage", s}, {"total", total_bytes(parts)}, {"limit", layout.stages[s].rank_memory_bytes}};
    for (const planner::BytesPart& part : parts)
      stage[part.title == "KV" ? "kv" : std::string(part.title)] = part.bytes;
    stages.push_back(std::move(stage));
  }
  return stages;
}

json times_json(const std::vector<TimePart>& parts) {
  json object;
  for (const TimePart& part : parts) object[std::string(part.title)] = finite(part.ms);
  return object;
}

json time_json(const PlanCase& of, const Candidate& layout) {
  const Breakdown parts = breakdown(of, layout);
  json stages = json::array();
  for (const planner::StageFigures& stage : layout.stages)
    stages.push_back({{"prefill_ms", stage.prefill_ms}, {"decode_ms", stage.decode_ms}});
  return {{"prefill_ms", times_json(parts.prefill)},
          {"decode_ms", times_json(parts.decode)},
          {"stages", std::move(stages)}};
}

json stages_json(const planner::Layout& layout) {
  json stages = json::array();
  for (const planner::PlacedStage& stage : layout.stages)
    stages.push_back({{"role", planner::kRoleNames[static_cast<size_t>(stage.role)]},
                      {"layers", {stage.layers.begin, stage.layers.end}},
                      {"tp", stage.shape.tp},
                      {"ep", stage.shape.ep},
                      {"node_class", stage.shape.node_class},
                      {"part", stage.part}});
  return stages;
}

json layout_json(const PlanCase& of, const Candidate& layout, std::string verdict) {
  const planner::Schedule& schedule = layout.layout.schedule;
  return {{"layout", layout_text(layout.layout)},
          {"kind", family_text(layout.layout)},
          {"replicas", layout.layout.n_replicas},
          {"stages", stages_json(layout.layout)},
          {"gpus", layout.gpus},
          {"nodes", layout.nodes},
          {"batch", schedule.batch},
          {"batches_in_flight", schedule.batches_in_flight},
          {"prefill_chunk", schedule.prefill_chunk},
          {"ttft_ms", finite(layout.served.ttft_ms)},
          {"tpot_ms", finite(layout.served.tpot_ms)},
          {"latency_ms", finite(layout.latency_ms)},
          {"tokens_per_s", finite(layout.tokens_per_s)},
          {"concurrency", finite(layout.served.concurrency)},
          {"saturated", layout.served.saturated},
          {"meets_limits", layout.meets_limits},
          {"memory_bytes", total_bytes(memory_of(layout, fullest_stage(layout)))},
          {"traffic_bytes", finite(layout.traffic_bytes)},
          {"extrapolated", is_extrapolated(of, layout.layout)},
          {"verdict", std::move(verdict)}};
}

json grid_json(const planner::SearchGrid& grid) {
  return {{"widths", grid.widths},
          {"batches", grid.batches},
          {"chunks", grid.chunks},
          {"most_stages", grid.most_stages},
          {"most_in_flight", grid.most_in_flight},
          {"most_replicas", grid.most_replicas}};
}

json refused_json(const std::vector<planner::Refusal>& refused) {
  json list = json::array();
  for (const planner::Refusal& refusal : refused)
    list.push_back(
        {{"layout", refusal.layout}, {"reason", refusal.reason}, {"remedy", refusal.remedy}});
  return list;
}

json law_json(const std::optional<planner::ThroughputLaw>& law) {
  if (!law) return nullptr;
  return {{"alpha", law->alpha},
          {"beta", law->beta},
          {"mean_error", law->mean_error},
          {"worst_error", law->worst_error}};
}

}  // namespace

std::string search_json(const PlanCase& of, const PlanResult& result) {
  const planner::SearchResult& search = result.search;
  const Candidate& best = search.best;
  const auto list = [&](const std::vector<Candidate>& layouts) {
    json objects = json::array();
    for (const Candidate& layout : layouts)
      objects.push_back(layout_json(of, layout, standing(of, best, layout, name_of_best(result))));
    return objects;
  };
  const json predicted = {{"ttft_ms", finite(best.served.ttft_ms)},
                          {"tpot_ms", finite(best.served.tpot_ms)},
                          {"tokens_per_s", finite(best.tokens_per_s)},
                          {"latency_ms", finite(best.latency_ms)},
                          {"memory", memory_json(best)},
                          {"time", time_json(of, best)},
                          {"extrapolated", result.extrapolated}};
  const json object = {{"plan", json::parse(to_json(result.plan, planner::WithPredicted::yes))},
                       {"plan_sha256", plan_sha256(result.plan)},
                       {"layout", layout_text(result.plan)},
                       {"world_size", world_size(result.plan)},
                       {"predicted", predicted},
                       {"ranked", list(search.ranked)},
                       {"front", list(search.front)},
                       {"refused", refused_json(search.refused)},
                       {"grid", grid_json(search.grid)},
                       {"proved", search.proved},
                       {"gap", finite(search.gap)},
                       {"verdict", search.verdict},
                       {"law", law_json(result.law)},
                       {"not_executed", result.not_executed},
                       {"search_ms", search.search_ms}};
  return object.dump() + "\n";
}

std::string compare_json(const PlanCase& of, const std::vector<Candidate>& layouts) {
  json compared = json::array();
  for (const Candidate& layout : layouts) {
    json object = layout_json(of, layout, standing(of, layouts.front(), layout, "the first"));
    object["memory"] = memory_json(layout);
    object["time"] = time_json(of, layout);
    compared.push_back(std::move(object));
  }
  return json{{"compared", std::move(compared)}}.dump() + "\n";
}

}  // namespace weft::launch
