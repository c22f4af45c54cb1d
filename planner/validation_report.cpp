// A validation as a table for people and as JSON for programs.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "planner/validate.h"

namespace weft::planner {
namespace {

using nlohmann::json;

json number(double value) { return std::isfinite(value) ? json(value) : json(nullptr); }

json errors_json(const ErrorSummary& errors) {
  return {{"rows", errors.rows},
          {"left_out", errors.left_out},
          {"saturated", errors.saturated},
          {"extrapolated", errors.extrapolated},
          {"scored_ttft_rows", errors.scored_ttft_rows},
          {"tpot_median_error", number(errors.tpot_median_error)},
          {"ttft_median_error", number(errors.ttft_median_error)},
          {"all_ttft_median_error", number(errors.all_ttft_median_error)}};
}

json key_json(const MeasuredRow& row) {
  return {{"line", row.line},
          {"model", row.model},
          {"gpu", row.gpu},
          {"engine", row.engine},
          {"engine_version", row.engine_version},
          {"weights", format_name(row.weights)},
          {"prompt_tokens", row.prompt_tokens},
          {"output_tokens", row.output_tokens},
          {"concurrency", row.concurrency},
          {"tp", row.tp},
          {"pp", row.pp},
          {"attention_dp", row.attention_dp},
          {"moe_tp", row.moe_tp},
          {"moe_ep", row.moe_ep},
          {"ttft_ms", row.ttft_ms},
          {"tpot_ms", row.tpot_ms}};
}

json parts_json(const StepParts& parts) {
  return {{"products", parts.products_ms},
          {"experts", parts.experts_ms},
          {"attention", parts.attention_ms},
          {"collectives", parts.collectives_ms},
          {"other", parts.other_ms},
          {"head", parts.head_ms},
          {"host", parts.host_ms}};
}

json row_json(const CheckedRow& checked) {
  const RowPrediction& prediction = checked.prediction;
  json object = key_json(checked.row);
  object["half"] = prediction.fit_half ? "fit" : "held out";
  if (!prediction.left_out.empty()) {
    object["left_out"] = prediction.left_out;
    return object;
  }
  object["predicted_ttft_ms"] = number(prediction.ttft_ms);
  object["predicted_tpot_ms"] = number(prediction.tpot_ms);
  object["predicted_tokens_per_s"] = number(prediction.tokens_per_s);
  object["served_at_once"] = prediction.served_at_once;
  object["saturated"] = prediction.saturated;
  object["extrapolated"] = prediction.extrapolated;
  object["scored_ttft"] = prediction.scored_ttft;
  object["decode_ms"] = parts_json(prediction.decode);
  object["prefill_chunk_ms"] = parts_json(prediction.prefill);
  return object;
}

json group_json(const ErrorGroup& group) {
  json object = errors_json(group.errors);
  object["model"] = group.model;
  object["gpu"] = group.gpu;
  object["engine"] = group.engine;
  object["engine_version"] = group.engine_version;
  object["weights"] = group.weights;
  object["moe"] = group.is_moe;
  return object;
}

std::string percent(double fraction) {
  return std::isfinite(fraction) ? fmt::format("{:.1f}", fraction * 100) : "-";
}

std::string summary_line(const std::string& name, const ErrorSummary& errors) {
  return fmt::format("{:<62} {:>5} {:>8} {:>9} {:>7} {:>8} {:>7}\n", name, errors.rows,
                     errors.left_out, errors.saturated, percent(errors.tpot_median_error),
                     errors.scored_ttft_rows, percent(errors.ttft_median_error));
}

}  // namespace

std::string validation_table(const Validation& validation) {
  std::string text = fmt::format("{:<62} {:>5} {:>8} {:>9} {:>7} {:>8} {:>7}\n", "group", "rows",
                                 "left out", "saturated", "TPOT %", "TTFT of", "TTFT %");
  for (const ErrorGroup& group : validation.groups) {
    const std::string version = group.engine_version.empty() ? "?" : group.engine_version;
    text += summary_line(
        fmt::format("{} {} {} {} {}", group.model, group.gpu, group.engine, version, group.weights),
        group.errors);
  }
  text += "\n" + summary_line("dense", validation.dense);
  text += summary_line("mixtures of experts", validation.moe);
  text += summary_line("all", validation.all);
  text += summary_line("half of the shapes that constants are fitted on", validation.fit_half);
  text += summary_line("the other half", validation.held_out);
  const Picks& picks = validation.picks;
  text += fmt::format(
      "\npicks: best or within 5 % in {} of {} cases; always the largest tp {}, always the "
      "smallest {}\n",
      picks.best_or_within_5_percent, picks.cases, picks.largest_tp, picks.smallest_tp);
  if (validation.all.left_out > 0) text += "\nleft out:\n";
  for (const CheckedRow& checked : validation.rows)
    if (!checked.prediction.left_out.empty())
      text += fmt::format("  line {}: {}\n", checked.row.line, checked.prediction.left_out);
  return text;
}

std::string validation_json(const Validation& validation) {
  json groups = json::array(), rows = json::array(), left_out = json::array();
  for (const ErrorGroup& group : validation.groups) groups.push_back(group_json(group));
  for (const CheckedRow& checked : validation.rows) {
    rows.push_back(row_json(checked));
    const std::string& reason = checked.prediction.left_out;
    if (!reason.empty()) left_out.push_back({{"line", checked.row.line}, {"reason", reason}});
  }
  const Picks& picks = validation.picks;
  const json object = {{"summary",
                        {{"all", errors_json(validation.all)},
                         {"dense", errors_json(validation.dense)},
                         {"moe", errors_json(validation.moe)},
                         {"fit_half", errors_json(validation.fit_half)},
                         {"held_out", errors_json(validation.held_out)},
                         {"rows", validation.all.rows},
                         {"scored_ttft_rows", validation.all.scored_ttft_rows},
                         {"tpot_median_error", number(validation.all.tpot_median_error)},
                         {"ttft_median_error", number(validation.all.ttft_median_error)}}},
                       {"groups", std::move(groups)},
                       {"picks",
                        {{"cases", picks.cases},
                         {"best_or_within_5_percent", picks.best_or_within_5_percent},
                         {"largest_tp", picks.largest_tp},
                         {"smallest_tp", picks.smallest_tp}}},
                       {"left_out", std::move(left_out)},
                       {"profiles", validation.profiles},
                       {"rows", std::move(rows)}};
  return object.dump(1) + "\n";
}

}  // namespace weft::planner
