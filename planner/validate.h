// Every measured row beside its prediction: errors by group, saturated rows, rows left out, and
// whether the planner would have picked well among the layouts that were measured.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "planner/row_prediction.h"

namespace weft::planner {

struct CheckedRow {
  MeasuredRow row;
  RowPrediction prediction;
};

// Absolute relative errors, as fractions; a median over no rows is NaN.
struct ErrorSummary {
  size_t rows = 0;  // predicted
  size_t left_out = 0;
  size_t saturated = 0;  // of the predicted, as predicted
  size_t extrapolated = 0;
  size_t scored_ttft_rows =
      0;  // unsaturated rows of engines that were measured with steady arrivals
  double tpot_median_error = 0;
  double ttft_median_error = 0;      // over the scored rows
  double all_ttft_median_error = 0;  // over all predicted rows
};

struct ErrorGroup {
  std::string model, gpu, engine, engine_version, weights;
  bool is_moe = false;
  ErrorSummary errors;
};

// For each workload measured at several tensor-parallel sizes and each limit on TPOT: the size with
// the most output tokens a second and GPU within the limit. A pick counts where what was measured
// at that size is within 5 % of the best measured.
struct Picks {
  size_t cases = 0;
  size_t best_or_within_5_percent = 0;
  size_t largest_tp = 0;  // cases in which always taking the largest size would have counted
  size_t smallest_tp = 0;
};
inline constexpr double kPickTpotMs[] = {15, 25, 40};
inline constexpr double kPickTolerance = 0.05;

struct Validation {
  std::vector<CheckedRow> rows;
  std::vector<ErrorGroup> groups;
  ErrorSummary all, dense, moe, fit_half, held_out;
  Picks picks;
  std::map<std::string, std::string> profiles;  // engine -> what its constants were fitted to
};

Validation validate(Catalog& catalog, const std::vector<MeasuredRow>& rows);

ErrorSummary summarize(const std::vector<const CheckedRow*>& rows);
Picks pick_layouts(const std::vector<CheckedRow>& rows);

std::string validation_table(const Validation& validation);
std::string validation_json(const Validation& validation);

}  // namespace weft::planner
