#include "launch/profile_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

namespace weft::launch {
namespace {

using nlohmann::ordered_json;
using runtime::kStepPartNames;
using runtime::PartSpan;

constexpr std::string_view kByClock = "by the host's clock";
constexpr std::string_view kByEvents =
    "by events between kernels, without graphs: no kernel overlaps the one before";

std::string_view method(const Profile& profile) { return profile.on_gpu ? kByEvents : kByClock; }

// The first rank of each stage.
std::vector<const RankTimes*> stage_ranks(const CaseProfile& of) {
  std::vector<const RankTimes*> ranks;
  for (const RankTimes& rank : of.ranks)
    if (rank.tp_rank == 0) ranks.push_back(&rank);
  return ranks;
}

double sum_over(const std::vector<const RankTimes*>& ranks, size_t part) {
  double ms = 0;
  for (const RankTimes* rank : ranks) ms += rank->ms[part];
  return ms;
}

double measured_ms(const std::vector<const RankTimes*>& ranks, const PredictedPart& of) {
  double ms = 0;
  for (const runtime::StepPart part : of.measured) ms += sum_over(ranks, static_cast<size_t>(part));
  return ms;
}

bool is_predicted(const CaseProfile& of) {
  return std::all_of(of.predicted.begin(), of.predicted.end(),
                     [](const auto& stage) { return stage.has_value(); });
}

double predicted_ms(const CaseProfile& of, double planner::StepParts::*part) {
  double ms = 0;
  for (const auto& stage : of.predicted) ms += (*stage).*part;
  return ms;
}

std::string parts_table(const CaseProfile& of) {
  const std::vector<const RankTimes*> ranks = stage_ranks(of);
  double all = 0;
  for (const RankTimes* rank : ranks) all += total_ms(rank->ms);
  std::string text = fmt::format("{:<12}", "part");
  for (const RankTimes* rank : ranks)
    text += fmt::format(" {:>14}", fmt::format("stage {} ms", rank->stage));
  text += fmt::format(" {:>8}\n", "share");
  for (size_t part = 0; part < kStepPartNames.size(); ++part) {
    if (sum_over(ranks, part) == 0) continue;
    text += fmt::format("{:<12}", kStepPartNames[part]);
    for (const RankTimes* rank : ranks) text += fmt::format(" {:>14.3f}", rank->ms[part]);
    text += fmt::format(" {:>7.1f}%\n", 100 * sum_over(ranks, part) / all);
  }
  text += fmt::format("{:<12}", "all");
  for (const RankTimes* rank : ranks) text += fmt::format(" {:>14.3f}", total_ms(rank->ms));
  return text + "\n";
}

std::string prediction_table(const CaseProfile& of) {
  if (!is_predicted(of)) return "";
  const std::vector<const RankTimes*> ranks = stage_ranks(of);
  std::string text = fmt::format("\n{:<12} {:>14} {:>14} {:>8}\n", "by the plan", "measured ms",
                                 "predicted ms", "ratio");
  for (const PredictedPart& part : predicted_parts()) {
    const double measured = measured_ms(ranks, part);
    const double predicted = predicted_ms(of, part.predicted);
    if (measured == 0 && predicted == 0) continue;
    text += fmt::format("{:<12} {:>14.3f} {:>14.3f} {:>8}\n", part.title, measured, predicted,
                        predicted > 0 ? fmt::format("{:.2f}", measured / predicted) : "-");
  }
  return text;
}

std::string layers_table(const Profile& profile) {
  std::string text = fmt::format("\n{:<12}", "layer");
  for (const CaseProfile& one : profile.cases)
    text += fmt::format(" {:>14}", fmt::format("{} ms", one.of.prefill ? "prefill" : "decode"));
  text += "\n";
  const std::vector<const RankTimes*> first = stage_ranks(profile.cases.front());
  for (size_t s = 0; s < first.size(); ++s)
    for (size_t i = 0; i < first[s]->layers.size(); ++i) {
      text += fmt::format("{:<12}", first[s]->layers[i].layer);
      for (const CaseProfile& one : profile.cases)
        text += fmt::format(" {:>14.4f}", total_ms(stage_ranks(one)[s]->layers[i].ms));
      text += "\n";
    }
  return text;
}

ordered_json parts_json(const PartTimes& times) {
  ordered_json out = ordered_json::object();
  for (size_t part = 0; part < times.size(); ++part)
    if (times[part] > 0) out[std::string(kStepPartNames[part])] = times[part];
  return out;
}

ordered_json rank_json(const RankTimes& rank) {
  ordered_json out = {
      {"rank", rank.rank},       {"stage", rank.stage},          {"tp_rank", rank.tp_rank},
      {"ms", total_ms(rank.ms)}, {"parts", parts_json(rank.ms)}, {"layers", ordered_json::array()}};
  for (const LayerTimes& layer : rank.layers)
    out["layers"].push_back(
        {{"layer", layer.layer}, {"ms", total_ms(layer.ms)}, {"parts", parts_json(layer.ms)}});
  return out;
}

ordered_json predicted_json(const CaseProfile& of) {
  if (!is_predicted(of)) return nullptr;
  ordered_json out;
  for (const PredictedPart& part : predicted_parts()) {
    ordered_json& entry = out[std::string(part.title)];
    entry["ms"] = predicted_ms(of, part.predicted);
    for (const runtime::StepPart name : part.measured)
      entry["parts"].push_back(kStepPartNames[static_cast<size_t>(name)]);
  }
  return out;
}

ordered_json case_json(const CaseProfile& of) {
  ordered_json out;
  out["work"] = of.of.prefill ? "prefill" : "decode";
  out["batch"] = of.of.batch;
  out[of.of.prefill ? "tokens" : "context"] = of.of.tokens;
  out["steps"] = of.n_batches;
  out["step_ms"] = of.of.measured_ms;
  out["ranks"] = ordered_json::array();
  for (const RankTimes& rank : of.ranks) out["ranks"].push_back(rank_json(rank));
  out["predicted"] = predicted_json(of);
  return out;
}

}  // namespace

std::string profile_text(const Profile& profile) {
  std::string text = fmt::format("{}, layout {}, {}; {}\n", profile.model, profile.layout,
                                 profile.device, method(profile));
  for (const CaseProfile& one : profile.cases) {
    text += fmt::format("\n{}: {:.3f} ms a step, the mean of {}\n", one.of.name(),
                        one.of.measured_ms, one.n_batches);
    text += parts_table(one) + prediction_table(one);
  }
  return text + layers_table(profile);
}

std::string profile_json(const Profile& profile) {
  ordered_json out;
  out["model"] = profile.model;
  out["layout"] = profile.layout;
  out["device"] = profile.device;
  out["method"] = method(profile);
  out["cases"] = ordered_json::array();
  for (const CaseProfile& one : profile.cases) out["cases"].push_back(case_json(one));
  return out.dump() + "\n";
}

std::string profile_trace(const Profile& profile) {
  ordered_json events = ordered_json::array();
  for (size_t rank = 0; rank < profile.spans.size(); ++rank) {
    events.push_back({{"name", "process_name"},
                      {"ph", "M"},
                      {"pid", rank},
                      {"args", {{"name", fmt::format("rank {}", rank)}}}});
    for (size_t i = 0; i < profile.cases.size(); ++i) {
      const CaseProfile& of = profile.cases[i];
      events.push_back({{"name", "thread_name"},
                        {"ph", "M"},
                        {"pid", rank},
                        {"tid", i},
                        {"args", {{"name", of.of.name()}}}});
      for (const PartSpan& span : profile.spans[rank]) {
        if (span.batch < of.first_batch || span.batch >= of.first_batch + of.n_batches) continue;
        ordered_json event = {{"name", kStepPartNames[static_cast<size_t>(span.part)]},
                              {"cat", of.of.prefill ? "prefill" : "decode"},
                              {"ph", "X"},
                              {"ts", span.begin_us},
                              {"dur", span.us},
                              {"pid", rank},
                              {"tid", i},
                              {"args", {{"batch", span.batch}}}};
        if (span.layer >= 0) event["args"]["layer"] = span.layer;
        events.push_back(std::move(event));
      }
    }
  }
  return ordered_json{{"traceEvents", std::move(events)}, {"displayTimeUnit", "ms"}}.dump() + "\n";
}

}  // namespace weft::launch
