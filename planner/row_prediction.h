// What the planner predicts for one measured row, and the rows that no prediction should be held
// against: what can't be split or held, and what no hardware could have done.
#pragma once

#include <string>

#include "planner/catalog.h"
#include "planner/measured_rows.h"
#include "planner/step_cost.h"

namespace weft::planner {

struct RowPrediction {
  std::string left_out;  // why; "" = predicted
  double ttft_ms = 0;
  double tpot_ms = 0;
  double tokens_per_s = 0;
  double served_at_once = 0;
  bool saturated = false;
  bool extrapolated = false;
  bool fit_half = false;  // the row's shape is in the half that constants are fitted on
  bool scored_ttft = false;
  bool is_moe = false;
  StepParts decode;  // summed over the stages
  StepParts prefill;
};

// Throws Error for a GPU that the catalog lacks; rows of unknown models and engines are left out.
RowPrediction predict_row(Catalog& catalog, const MeasuredRow& row);

// A shape is a model on a GPU with weights and token counts; half of all shapes by their SHA-256.
bool in_fit_half(const MeasuredRow& row);

}  // namespace weft::planner
