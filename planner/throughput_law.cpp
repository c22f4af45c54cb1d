#include "planner/throughput_law.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/error.h"

namespace weft::planner {
namespace {

double sequences(const ThroughputPoint& at) {
  return std::min(at.batch_limit, at.kv_tokens / at.sequence_tokens);
}

}  // namespace

double ThroughputLaw::tokens_per_s(const ThroughputPoint& at) const {
  return alpha * std::pow(at.sequence_tokens, -beta) * sequences(at);
}

ThroughputLaw fit_throughput_law(std::span<const ThroughputPoint> points) {
  double n = 0, sum_x = 0, sum_y = 0, sum_xx = 0, sum_xy = 0;
  for (const ThroughputPoint& point : points) {
    const double least =
        std::min({point.sequence_tokens, point.batch_limit, point.kv_tokens, point.tokens_per_s});
    if (!(least > 0)) throw input_error("throughput law: {} is not above 0", least);
    const double x = std::log(point.sequence_tokens);
    const double y = std::log(point.tokens_per_s / sequences(point));
    n += 1, sum_x += x, sum_y += y, sum_xx += x * x, sum_xy += x * y;
  }
  const double spread = n * sum_xx - sum_x * sum_x;
  if (n < 2 || spread < 1e-9 * n * n)
    throw input_error("throughput law: {} points of one length tell no exponent", points.size());
  const double slope = (n * sum_xy - sum_x * sum_y) / spread;
  ThroughputLaw law;
  law.beta = -slope;
  law.alpha = std::exp((sum_y - slope * sum_x) / n);
  for (const ThroughputPoint& point : points) {
    const double error = std::abs(law.tokens_per_s(point) / point.tokens_per_s - 1);
    law.mean_error += error / n;
    law.worst_error = std::max(law.worst_error, error);
  }
  return law;
}

}  // namespace weft::planner
