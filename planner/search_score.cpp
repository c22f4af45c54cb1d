// Scores from what a replica serves.
#include "planner/search_score.h"

#include <algorithm>
#include <cmath>

namespace weft::planner {
namespace {

constexpr double kRounding = 1e-9;

// -1, 0, 1: a below b, the same up to rounding, above.
int compare(double a, double b) {
  if (a == b) return 0;
  const double slack = kRounding * std::max(std::abs(a), std::abs(b));
  if (std::abs(a - b) <= slack && std::isfinite(slack)) return 0;
  return a < b ? -1 : 1;
}

}  // namespace

bool may_beat(const Score& bound, const Score& best) {
  if (const int order = compare(bound.value, best.value)) return order < 0;
  if (bound.value == kNever) return false;
  if (const int order = compare(bound.second, best.second)) return order < 0;
  return compare(bound.third, best.third) < 0;
}

Served Scorer::served(const PipelineTimes& times, const Schedule& schedule,
                      size_t n_replicas) const {
  return serving_.served(times, schedule, space_.replica_concurrency(n_replicas, schedule.batch));
}

double Scorer::latency_ms(const Served& served) const {
  return served.ttft_ms + static_cast<double>(workload_.output_tokens - 1) * served.tpot_ms;
}

bool Scorer::meets_limits(const Served& served) const {
  if (workload_.slo_ttft_ms && !(served.ttft_ms <= *workload_.slo_ttft_ms)) return false;
  if (workload_.slo_tpot_ms && !(served.tpot_ms <= *workload_.slo_tpot_ms)) return false;
  return workload_.objective != Objective::gpus || !served.saturated;
}

double Scorer::miss(const Served& served, double asked) const {
  double most = 0;
  if (workload_.slo_ttft_ms) most = std::max(most, served.ttft_ms / *workload_.slo_ttft_ms);
  if (workload_.slo_tpot_ms) most = std::max(most, served.tpot_ms / *workload_.slo_tpot_ms);
  if (workload_.objective == Objective::gpus && served.saturated && served.concurrency > 0)
    most = std::max(most, asked / served.concurrency);
  return most;
}

Score Scorer::score(const PipelineTimes& times, const Schedule& schedule, size_t n_replicas,
                    size_t gpus, double traffic_bytes) const {
  if (times.prefill_sum_ms == kNever || times.decode_sum_ms == kNever) return {};
  if (times.prefill_max_ms == kNever || times.decode_max_ms == kNever) return {};
  return score(served(times, schedule, n_replicas), schedule, n_replicas, gpus, traffic_bytes);
}

Score Scorer::score(const Served& one, const Schedule& schedule, size_t n_replicas, size_t gpus,
                    double traffic_bytes) const {
  const double asked = space_.replica_concurrency(n_replicas, schedule.batch);
  const auto n = static_cast<double>(gpus);
  if (goal_ == Goal::closest) return {miss(one, asked), n, traffic_bytes};
  if (!meets_limits(one)) return {};
  switch (goal_) {
    case Goal::latency:
      return {latency_ms(one), n, traffic_bytes};
    case Goal::throughput:
      return {-tokens_per_s(one, n_replicas), n, traffic_bytes};
    default:
      return {n, latency_ms(one), traffic_bytes};
  }
}

}  // namespace weft::planner
