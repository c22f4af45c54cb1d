// What `weft bench scale` found: layouts beside one rank, beside what their memory could read, and
// beside the plan's word.
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace weft::launch {

struct ScaleCase {
  bool prefill = false;
  size_t batch = 1;
  size_t tokens = 0;      // of each sequence: the context that a decode step sees; the prompt
  size_t read_bytes = 0;  // of weights, keys and values, at least, over all ranks: decode

  // What a token costs counts decode steps of the whole batch; a prompt is one request.
  std::string name() const;
};

struct ScaleFigure {
  double ms = 0;  // TPOT, or TTFT
  std::optional<double> predicted_ms;
};

struct ScaleLayout {
  std::string layout;
  size_t n_ranks = 1;
  std::string failure;                              // why there are no figures; else empty
  std::optional<bool> same_tokens;                  // as the first layout's, in invariant numerics
  std::vector<std::optional<ScaleFigure>> figures;  // [cases] none: it does not fit
};

struct ScaleReport {
  std::string model;
  std::string device;  // "CPU", "NVIDIA H200"
  std::string dtype;
  std::string numerics;
  std::string no_prediction;      // why the plan says nothing; empty where it does
  std::vector<double> read_gbps;  // [ranks] of the job, all reading at once
  std::vector<ScaleCase> cases;
  std::vector<ScaleLayout> layouts;  // fewest ranks first
};

// Tokens a second: of a batch's decode steps; of a prompt's.
double tokens_per_s(const ScaleCase& of, const ScaleFigure& figure);
// The rate over that of the first layout that has one, for each rank: 1 is linear. None where this
// layout or every other has no figure.
std::optional<double> efficiency(const ScaleReport& report, size_t layout, size_t of_case);
// Time that reading alone would take its ranks together, over the measured; decode cases.
std::optional<double> read_share(const ScaleReport& report, size_t layout, size_t of_case);
// (predicted - measured) / measured.
std::optional<double> prediction_error(const ScaleFigure& figure);

// Of one case: the layout that the plan ranks first, and the fastest; none without predictions.
struct ScaleVerdict {
  size_t predicted = 0;  // index of a layout
  size_t measured = 0;
  bool agrees() const { return predicted == measured; }
};
std::optional<ScaleVerdict> verdict(const ScaleReport& report, size_t of_case);
// Of |prediction_error| over all figures; none without predictions.
std::optional<double> median_error(const ScaleReport& report);

bool failed(const ScaleReport& report);  // a layout has no figures, or other tokens
std::string scale_text(const ScaleReport& report);
std::string scale_json(const ScaleReport& report);

}  // namespace weft::launch
