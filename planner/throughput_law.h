// A law that sums up a plan's throughput in two numbers, T = α · (1 / L)^β · min(B, C / L): T
// tokens a second, L tokens of a sequence, B the most sequences at once, C tokens of KV that fit.
// min(B, C / L) sequences run at once, each at a rate that falls as a power of its length. Fitted
// to the planner's own sweep for the report; no decision rests on it.
#pragma once

#include <span>

namespace weft::planner {

struct ThroughputPoint {
  double sequence_tokens = 0;  // L
  double batch_limit = 0;      // B
  double kv_tokens = 0;        // C
  double tokens_per_s = 0;     // T
};

struct ThroughputLaw {
  double alpha = 0;
  double beta = 0;
  double mean_error = 0;  // mean and largest of |law / T - 1| over the points
  double worst_error = 0;

  double tokens_per_s(const ThroughputPoint& at) const;
};

// Least squares of log T. Needs points of two lengths at least; all numbers above 0. Throws Error.
ThroughputLaw fit_throughput_law(std::span<const ThroughputPoint> points);

}  // namespace weft::planner
