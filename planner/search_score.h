// The score of a layout, smaller is better: the objective, then GPUs, then traffic between nodes.
#pragma once

#include "planner/group_bounds.h"

namespace weft::planner {

// What is minimised. `closest` is for limits that can't be met: how far they are missed.
enum class Goal { latency, throughput, gpus, closest };

// Lexicographic. latency: {ms, GPUs, traffic}; throughput: {-tokens/s, GPUs, traffic}; gpus: {GPUs,
// latency, traffic}; closest: {largest ratio of time to limit, GPUs, traffic}.
struct Score {
  double value = kNever;  // kNever: the limits are missed
  double second = kNever;
  double third = kNever;

  auto operator<=>(const Score&) const = default;
};

// Whether what has this bound could be better than `best`, rounding of sums allowed for.
bool may_beat(const Score& bound, const Score& best);

class Scorer {
 public:
  Scorer(const Space& space, const Workload& workload, const ServingModel& serving, Goal goal)
      : space_(space), workload_(workload), serving_(serving), goal_(goal) {}

  Goal goal() const { return goal_; }
  Served served(const PipelineTimes& times, const Schedule& schedule, size_t n_replicas) const;
  // `gpus` of all replicas. Falls with none of the times, GPUs and traffic, so bounds give bounds.
  Score score(const PipelineTimes& times, const Schedule& schedule, size_t n_replicas, size_t gpus,
              double traffic_bytes) const;
  // The same of what one replica serves.
  Score score(const Served& served, const Schedule& schedule, size_t n_replicas, size_t gpus,
              double traffic_bytes) const;
  bool meets_limits(const Served& served) const;
  double latency_ms(const Served& served) const;
  double tokens_per_s(const Served& served, size_t n_replicas) const {
    return served.tokens_per_s * static_cast<double>(n_replicas);
  }

 private:
  double miss(const Served& served, double asked) const;

  const Space& space_;
  const Workload& workload_;
  const ServingModel& serving_;
  Goal goal_;
};

}  // namespace weft::planner
