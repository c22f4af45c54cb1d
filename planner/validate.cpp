#include "planner/validate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <tuple>

namespace weft::planner {
namespace {

double median(std::vector<double> values) {
  if (values.empty()) return std::numeric_limits<double>::quiet_NaN();
  const size_t middle = values.size() / 2;
  std::nth_element(values.begin(), values.begin() + static_cast<long>(middle), values.end());
  const double upper = values[middle];
  if (values.size() % 2 == 1) return upper;
  return (upper + *std::max_element(values.begin(), values.begin() + static_cast<long>(middle))) /
         2;
}

double error_of(double predicted, double measured) { return std::abs(predicted / measured - 1); }

template <class Keep>
ErrorSummary summarize_if(const std::vector<CheckedRow>& rows, Keep keep) {
  std::vector<const CheckedRow*> kept;
  for (const CheckedRow& row : rows)
    if (keep(row)) kept.push_back(&row);
  return summarize(kept);
}

std::vector<ErrorGroup> groups_of(const std::vector<CheckedRow>& rows) {
  using Key = std::tuple<std::string, std::string, std::string, std::string, std::string>;
  std::map<Key, std::vector<const CheckedRow*>> members;
  for (const CheckedRow& checked : rows) {
    const MeasuredRow& row = checked.row;
    members[{row.model, row.gpu, row.engine, row.engine_version,
             std::string(format_name(row.weights))}]
        .push_back(&checked);
  }
  std::vector<ErrorGroup> groups;
  for (const auto& [key, group] : members) {
    const auto& [model, gpu, engine, version, weights] = key;
    groups.push_back(
        {model, gpu, engine, version, weights, group.front()->prediction.is_moe, summarize(group)});
  }
  return groups;
}

// Most tokens a second and GPU within the limit, by tensor-parallel size; sizes at which no row
// meets it have 0.
using RateByTp = std::map<size_t, double>;

template <class Tpot, class Rate>
RateByTp rates_by_tp(const std::vector<const CheckedRow*>& rows, double limit_ms, Tpot tpot,
                     Rate rate) {
  RateByTp best;
  for (const CheckedRow* checked : rows) {
    double& of_tp = best[checked->row.tp];
    if (tpot(*checked) > limit_ms) continue;
    of_tp = std::max(of_tp, rate(*checked) / static_cast<double>(gpus_of(checked->row)));
  }
  return best;
}

size_t best_tp(const RateByTp& rates) {
  return std::max_element(rates.begin(), rates.end(),
                          [](const auto& a, const auto& b) { return a.second < b.second; })
      ->first;
}

// Where no prediction meets the limit, the planner would take the size that misses it by least.
size_t fastest_tp(const std::vector<const CheckedRow*>& rows) {
  return (*std::min_element(rows.begin(), rows.end(),
                            [](const CheckedRow* a, const CheckedRow* b) {
                              return a->prediction.tpot_ms < b->prediction.tpot_ms;
                            }))
      ->row.tp;
}

void count_pick(const std::vector<const CheckedRow*>& rows, double limit_ms, Picks& picks) {
  const RateByTp measured = rates_by_tp(
      rows, limit_ms, [](const CheckedRow& row) { return row.row.tpot_ms; },
      [](const CheckedRow& row) { return tokens_per_s(row.row); });
  const RateByTp predicted = rates_by_tp(
      rows, limit_ms, [](const CheckedRow& row) { return row.prediction.tpot_ms; },
      [](const CheckedRow& row) { return row.prediction.tokens_per_s; });
  const double best = measured.at(best_tp(measured));
  if (best <= 0) return;  // no size meets the limit
  size_t pick = best_tp(predicted);
  if (predicted.at(pick) <= 0) pick = fastest_tp(rows);
  const auto counts = [&](size_t tp) { return measured.at(tp) >= best * (1 - kPickTolerance); };
  ++picks.cases;
  picks.best_or_within_5_percent += counts(pick);
  picks.largest_tp += counts(measured.rbegin()->first);
  picks.smallest_tp += counts(measured.begin()->first);
}

}  // namespace

ErrorSummary summarize(const std::vector<const CheckedRow*>& rows) {
  ErrorSummary summary;
  std::vector<double> tpot, ttft, all_ttft;
  for (const CheckedRow* checked : rows) {
    const RowPrediction& prediction = checked->prediction;
    if (!prediction.left_out.empty()) {
      ++summary.left_out;
      continue;
    }
    ++summary.rows;
    summary.saturated += prediction.saturated;
    summary.extrapolated += prediction.extrapolated;
    if (checked->row.output_tokens > 1)
      tpot.push_back(error_of(prediction.tpot_ms, checked->row.tpot_ms));
    all_ttft.push_back(error_of(prediction.ttft_ms, checked->row.ttft_ms));
    if (prediction.scored_ttft) ttft.push_back(all_ttft.back());
  }
  summary.scored_ttft_rows = ttft.size();
  summary.tpot_median_error = median(std::move(tpot));
  summary.ttft_median_error = median(std::move(ttft));
  summary.all_ttft_median_error = median(std::move(all_ttft));
  return summary;
}

Picks pick_layouts(const std::vector<CheckedRow>& rows) {
  using Key =
      std::tuple<std::string, std::string, std::string, std::string, NumberFormat, size_t, size_t>;
  std::map<Key, std::vector<const CheckedRow*>> workloads;
  for (const CheckedRow& checked : rows) {
    const MeasuredRow& row = checked.row;
    if (!checked.prediction.left_out.empty()) continue;
    workloads[{row.model, row.gpu, row.engine, row.engine_version, row.weights, row.prompt_tokens,
               row.output_tokens}]
        .push_back(&checked);
  }
  Picks picks;
  for (const auto& [key, workload] : workloads) {
    const size_t first = workload.front()->row.tp;
    const bool several = std::any_of(workload.begin(), workload.end(),
                                     [&](const CheckedRow* row) { return row->row.tp != first; });
    if (!several) continue;
    for (const double limit_ms : kPickTpotMs) count_pick(workload, limit_ms, picks);
  }
  return picks;
}

Validation validate(Catalog& catalog, const std::vector<MeasuredRow>& rows) {
  Validation validation;
  for (const MeasuredRow& row : rows) {
    validation.rows.push_back({row, predict_row(catalog, row)});
    validation.profiles[row.engine] = catalog.engine(row.engine).source;
  }
  const std::vector<CheckedRow>& checked = validation.rows;
  validation.groups = groups_of(checked);
  validation.all = summarize_if(checked, [](const CheckedRow&) { return true; });
  validation.dense =
      summarize_if(checked, [](const CheckedRow& row) { return !row.prediction.is_moe; });
  validation.moe =
      summarize_if(checked, [](const CheckedRow& row) { return row.prediction.is_moe; });
  validation.fit_half =
      summarize_if(checked, [](const CheckedRow& row) { return row.prediction.fit_half; });
  validation.held_out =
      summarize_if(checked, [](const CheckedRow& row) { return !row.prediction.fit_half; });
  validation.picks = pick_layouts(checked);
  return validation;
}

}  // namespace weft::planner
