#include "launch/scale_report.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

namespace weft::launch {
namespace {

using json = nlohmann::ordered_json;

const ScaleFigure* figure_of(const ScaleReport& report, size_t layout, size_t of_case) {
  const auto& figures = report.layouts[layout].figures;
  return of_case < figures.size() && figures[of_case] ? &*figures[of_case] : nullptr;
}

std::string percent(const std::optional<double>& share, const char* sign = "") {
  if (!share) return "-";
  return fmt::format("{}{:.1f} %", *share > 0 ? sign : "", 100 * *share);
}

std::string tokens_word(const ScaleLayout& layout) {
  if (!layout.same_tokens) return "-";
  return *layout.same_tokens ? "same" : "OTHER";
}

std::string case_text(const ScaleReport& report, size_t c) {
  const ScaleCase& of = report.cases[c];
  std::string text =
      fmt::format("\n{}\n{:<24} {:>5} {:>10} {:>11} {:>11} {:>9} {:>12} {:>9}  {}\n", of.name(),
                  "layout", "ranks", of.prefill ? "TTFT ms" : "TPOT ms", "tokens/s", "efficiency",
                  "of reads", "predicted ms", "error", "tokens");
  for (size_t i = 0; i < report.layouts.size(); ++i) {
    const ScaleLayout& layout = report.layouts[i];
    text += fmt::format("{:<24} {:>5}", layout.layout, layout.n_ranks);
    const ScaleFigure* figure = figure_of(report, i, c);
    if (figure == nullptr) {
      text += layout.failure.empty() ? " does not fit\n" : " failed: " + layout.failure + "\n";
      continue;
    }
    text += fmt::format(" {:>10.3f} {:>11.1f} {:>11} {:>9} {:>12} {:>9}  {}\n", figure->ms,
                        tokens_per_s(of, *figure), percent(efficiency(report, i, c)),
                        percent(read_share(report, i, c)),
                        figure->predicted_ms ? fmt::format("{:.3f}", *figure->predicted_ms) : "-",
                        percent(prediction_error(*figure), "+"), tokens_word(layout));
  }
  if (const auto found = verdict(report, c)) {
    const std::string& first = report.layouts[found->predicted].layout;
    const std::string& fastest = report.layouts[found->measured].layout;
    text += found->agrees()
                ? fmt::format("ranked first by the plan, and fastest: {}\n", first)
                : fmt::format("ranked first by the plan: {}; fastest: {}\n", first, fastest);
  }
  return text;
}

bool reads_from_caches(const ScaleReport& report) {
  for (size_t c = 0; c < report.cases.size(); ++c)
    for (size_t i = 0; i < report.layouts.size(); ++i)
      if (read_share(report, i, c).value_or(0) > 1) return true;
  return false;
}

json optional_of(const std::optional<double>& value) {
  return value ? json(*value) : json(nullptr);
}

json figure_json(const ScaleReport& report, size_t i, size_t c) {
  const ScaleCase& of = report.cases[c];
  json row;
  row["work"] = of.prefill ? "prefill" : "decode";
  row["batch"] = of.batch;
  row[of.prefill ? "tokens" : "context"] = of.tokens;
  const ScaleFigure* figure = figure_of(report, i, c);
  row["measured"] = figure != nullptr;
  if (figure == nullptr) return row;
  row[of.prefill ? "ttft_ms" : "tpot_ms"] = figure->ms;
  row["tokens_per_s"] = tokens_per_s(of, *figure);
  row["efficiency"] = optional_of(efficiency(report, i, c));
  if (!of.prefill) row["read_share"] = optional_of(read_share(report, i, c));
  row["predicted_ms"] = optional_of(figure->predicted_ms);
  row["error"] = optional_of(prediction_error(*figure));
  return row;
}

json verdict_json(const ScaleReport& report, size_t c) {
  const auto found = verdict(report, c);
  if (!found) return nullptr;
  return {{"case", report.cases[c].name()},
          {"ranked_first", report.layouts[found->predicted].layout},
          {"fastest", report.layouts[found->measured].layout},
          {"agrees", found->agrees()}};
}

}  // namespace

std::string ScaleCase::name() const {
  return prefill ? fmt::format("prefill {}", tokens)
                 : fmt::format("decode batch {}, context {}", batch, tokens);
}

double tokens_per_s(const ScaleCase& of, const ScaleFigure& figure) {
  const size_t n = of.prefill ? of.tokens : of.batch;
  return static_cast<double>(n) / figure.ms * 1e3;
}

std::optional<double> efficiency(const ScaleReport& report, size_t layout, size_t of_case) {
  const ScaleFigure* mine = figure_of(report, layout, of_case);
  for (size_t i = 0; i < report.layouts.size(); ++i) {
    const ScaleFigure* base = figure_of(report, i, of_case);
    if (base == nullptr || mine == nullptr) continue;
    return base->ms * static_cast<double>(report.layouts[i].n_ranks) /
           (mine->ms * static_cast<double>(report.layouts[layout].n_ranks));
  }
  return std::nullopt;
}

std::optional<double> read_share(const ScaleReport& report, size_t layout, size_t of_case) {
  const ScaleCase& of = report.cases[of_case];
  const ScaleFigure* figure = figure_of(report, layout, of_case);
  if (of.prefill || figure == nullptr) return std::nullopt;
  double gbps = 0;
  for (size_t r = 0; r < report.layouts[layout].n_ranks; ++r) gbps += report.read_gbps[r];
  if (gbps <= 0) return std::nullopt;
  return static_cast<double>(of.read_bytes) / gbps * 1e-6 / figure->ms;
}

std::optional<double> prediction_error(const ScaleFigure& figure) {
  if (!figure.predicted_ms) return std::nullopt;
  return (*figure.predicted_ms - figure.ms) / figure.ms;
}

std::optional<ScaleVerdict> verdict(const ScaleReport& report, size_t of_case) {
  std::optional<ScaleVerdict> found;
  for (size_t i = 0; i < report.layouts.size(); ++i) {
    const ScaleFigure* figure = figure_of(report, i, of_case);
    if (figure == nullptr || !figure->predicted_ms) continue;
    if (!found) found = ScaleVerdict{i, i};
    if (*figure->predicted_ms < *figure_of(report, found->predicted, of_case)->predicted_ms)
      found->predicted = i;
    if (figure->ms < figure_of(report, found->measured, of_case)->ms) found->measured = i;
  }
  return found;
}

std::optional<double> median_error(const ScaleReport& report) {
  std::vector<double> errors;
  for (const ScaleLayout& layout : report.layouts)
    for (const auto& figure : layout.figures)
      if (figure && figure->predicted_ms) errors.push_back(std::abs(*prediction_error(*figure)));
  if (errors.empty()) return std::nullopt;
  std::sort(errors.begin(), errors.end());
  const size_t half = errors.size() / 2;
  return errors.size() % 2 == 1 ? errors[half] : (errors[half - 1] + errors[half]) / 2;
}

bool failed(const ScaleReport& report) {
  return std::any_of(report.layouts.begin(), report.layouts.end(), [](const ScaleLayout& layout) {
    return !layout.failure.empty() || !layout.same_tokens.value_or(true);
  });
}

std::string scale_text(const ScaleReport& report) {
  double gbps = 0;
  for (const double rate : report.read_gbps) gbps += rate;
  std::string text =
      fmt::format("{}, {}, {}, {} numerics; {} ranks read {:.1f} GB/s together\n", report.model,
                  report.device, report.dtype, report.numerics, report.read_gbps.size(), gbps);
  if (!report.no_prediction.empty())
    text += fmt::format("no prediction: {}\n", report.no_prediction);
  for (size_t c = 0; c < report.cases.size(); ++c) text += case_text(report, c);
  if (reads_from_caches(report))
    text += "\nabove 100 % of reads: weights and keys stay in caches between steps\n";
  if (const auto error = median_error(report))
    text += fmt::format("\nmedian error of the predictions: {}\n", percent(error));
  return text;
}

std::string scale_json(const ScaleReport& report) {
  json out;
  out["model"] = report.model;
  out["device"] = report.device;
  out["dtype"] = report.dtype;
  out["numerics"] = report.numerics;
  out["read_gbps"] = report.read_gbps;
  if (!report.no_prediction.empty()) out["no_prediction"] = report.no_prediction;
  out["layouts"] = json::array();
  for (size_t i = 0; i < report.layouts.size(); ++i) {
    const ScaleLayout& layout = report.layouts[i];
    json row;
    row["layout"] = layout.layout;
    row["ranks"] = layout.n_ranks;
    if (!layout.failure.empty()) row["failure"] = layout.failure;
    row["same_tokens"] = layout.same_tokens ? json(*layout.same_tokens) : json(nullptr);
    row["cases"] = json::array();
    for (size_t c = 0; c < report.cases.size(); ++c)
      row["cases"].push_back(figure_json(report, i, c));
    out["layouts"].push_back(std::move(row));
  }
  out["verdicts"] = json::array();
  for (size_t c = 0; c < report.cases.size(); ++c)
    if (json one = verdict_json(report, c); !one.is_null())
      out["verdicts"].push_back(std::move(one));
  out["median_error"] = optional_of(median_error(report));
  return out.dump(-1, ' ', false, json::error_handler_t::replace);
}

}  // namespace weft::launch
