// Layouts of one kind of stage, balanced: the families that people think in ("TP 4 x PP 2"). Their
// sweep gives the search its first bound, the ranking its rows and the Pareto front its points.
#pragma once

#include <vector>

#include "planner/search_score.h"

namespace weft::planner {

struct Family {
  size_t kind = 0;  // index in Space::kinds, of all stages
  size_t n_stages = 1;
};

// All families for which the cluster has GPUs.
std::vector<Family> families(const Space& space);

// One replica: nodes filled stage by stage, layers balanced, the remainder on the earlier stages.
Layout uniform_layout(const Space& space, const Family& family);

// What the sweep saw of one layout.
struct SweptLayout {
  Score score;
  Layout layout;
  Served served;
  size_t gpus = 0;  // of all replicas
};

// Every family with 1, 2, 4, … and with all replicas that there is room for, over the schedules
// with M = 1, P and 2P.
class Sweep {
 public:
  Sweep(const Space& space, StageTables& tables, const Scorer& scorer)
      : space_(space), tables_(tables), scorer_(scorer) {}

  void run();
  // The best of each family that fits and meets the limits, best first.
  const std::vector<SweptLayout>& best() const { return best_; }
  // None is beaten by another in latency, tokens/s and GPUs.
  const std::vector<SweptLayout>& front() const { return front_; }
  // Puts it among the front unless it is beaten.
  void offer(const SweptLayout& swept);

 private:
  void run_family(const Family& family);
  void run_batch(const Family& family, Layout& layout, SweptLayout& best);
  PipelineTimes times_of(const Family& family, const Layout& layout);
  bool could_fit(const Family& family, const Layout& layout);
  bool fits(const Layout& layout) const;
  bool is_beaten(const SweptLayout& swept) const;

  const Space& space_;
  StageTables& tables_;
  const Scorer& scorer_;
  std::vector<SweptLayout> best_, front_;
};

}  // namespace weft::planner
