// The sweep over families gives a first best, the best-first search the optimum; both together the
// ranking, the Pareto front and the explanation.
#include "planner/search.h"

#include <algorithm>
#include <chrono>
#include <set>

#include "planner/best_first.h"
#include "planner/layout_figures.h"
#include "planner/problem_list.h"
#include "planner/search_report.h"
#include "planner/uniform_layouts.h"

namespace weft::planner {
namespace {

Goal goal_of(Objective objective) {
  switch (objective) {
    case Objective::latency:
      return Goal::latency;
    case Objective::throughput:
      return Goal::throughput;
    default:
      return Goal::gpus;
  }
}

size_t work_of(const SearchRequest& request) {
  if (request.max_work > 0) return request.max_work;
  return request.cluster.nodes.size() > kMostProvedClasses ? kBoundedWork : 0;
}

// Expert shares alone make no family of their own in a ranking.
std::string without_ep(Layout layout) {
  for (PlacedStage& stage : layout.stages) stage.shape.ep = 1;
  return family_text(layout);
}

// One goal, searched to the end. The best's score is kNever where nothing fits or meets the limits.
class Run {
 public:
  Run(const SearchRequest& request, const StageCosts& costs, const ServingModel& serving, Goal goal)
      : request_(request),
        costs_(costs),
        space_(make_space(request, costs)),
        tables_(space_, costs),
        scorer_(space_, request.workload, serving, goal),
        sweep_(space_, tables_, scorer_) {}

  void search(SearchResult& result) {
    if (space_.kinds.empty()) return;
    const size_t most_gpus = space_.most_gpus;
    sweep_.run();
    if (!sweep_.best().empty()) {
      best_ = {sweep_.best().front().score, sweep_.best().front().layout};
      if (scorer_.goal() == Goal::gpus) space_.most_gpus = sweep_.best().front().gpus;
    }
    BestFirst search(space_, tables_, scorer_, {request_.separate_groups, work_of(request_)});
    search.run(best_);
    space_.most_gpus = most_gpus;
    result.proved = search.proved();
    result.gap = search.gap();
    result.n_bounds += search.n_bounds();
    if (best_.score.value < kNever) {
      result.best = candidate(best_.layout);
      result.found = result.best.meets_limits;
      rank(search.chains(), result);
      offer_best(result);
    }
    result.n_expanded += search.chains().n_expanded();
    fill_grid(search.most_batch(), result.grid);
  }

  void explain(const ServingModel& serving, SearchResult& result) {
    const Workload& workload = request_.workload;
    refuse_widths(request_, space_, result.refused);
    refuse_memory(space_, tables_, costs_, result.refused);
    if (workload.slo_ttft_ms || workload.slo_tpot_ms) {
      const Scorer closest(space_, workload, serving, Goal::closest);
      Sweep sweep(space_, tables_, closest);
      sweep.run();
      refuse_slow(closest, workload, sweep.best(), result.refused);
    }
    result.verdict = verdict_text(workload, result);
  }

 private:
  void fill_grid(size_t most_batch, SearchGrid& grid) const {
    grid.widths = space_.widths;
    grid.chunks = space_.chunks;
    grid.most_stages = space_.most_stages;
    grid.most_replicas = space_.most_replicas;
    grid.batches.clear();
    for (size_t batch = 1; batch <= most_batch; batch *= 2) grid.batches.push_back(batch);
    grid.most_in_flight = std::min(2 * space_.most_stages, most_batch);
  }

  Candidate candidate(const Layout& layout) const {
    return make_candidate(space_, costs_, scorer_, layout);
  }

  // The best first, then the best of the other families, their layers balanced exactly.
  void rank(ChainSearch& chains, SearchResult& result) {
    result.ranked = {result.best};
    std::set<std::string> ranked = {without_ep(result.best.layout)};
    for (const SweptLayout& swept : sweep_.best()) {
      if (result.ranked.size() >= request_.n_ranked) break;
      if (!ranked.insert(without_ep(swept.layout)).second) continue;
      result.ranked.push_back(candidate(balanced(chains, swept)));
    }
    std::stable_sort(result.ranked.begin() + 1, result.ranked.end(),
                     [&](const Candidate& a, const Candidate& b) { return score(a) < score(b); });
  }

  Layout balanced(ChainSearch& chains, const SweptLayout& swept) const {
    ChainItem item;
    item.n_replicas = swept.layout.n_replicas;
    item.n_stages = swept.layout.stages.size();
    item.schedule = swept.layout.schedule;
    item.decode_gpus = swept.gpus / item.n_replicas;
    const size_t tp = swept.layout.stages.front().shape.tp;
    const auto width = std::find(space_.widths.begin(), space_.widths.end(), tp);
    Best best = {swept.score, swept.layout};
    chains.run(item, best, static_cast<size_t>(width - space_.widths.begin()));
    return best.layout;
  }

  Score score(const Candidate& made) const {
    return scorer_.score(made.times, made.layout.schedule, made.layout.n_replicas, made.gpus,
                         made.traffic_bytes);
  }

  void offer_best(SearchResult& result) {
    if (!result.best.meets_limits) return;
    sweep_.offer({best_.score, best_.layout, result.best.served, result.best.gpus});
    for (const SweptLayout& swept : sweep_.front()) result.front.push_back(candidate(swept.layout));
    std::stable_sort(result.front.begin(), result.front.end(),
                     [](const Candidate& a, const Candidate& b) {
                       return std::pair(a.gpus, a.latency_ms) < std::pair(b.gpus, b.latency_ms);
                     });
  }

  const SearchRequest& request_;
  const StageCosts& costs_;
  Space space_;
  StageTables tables_;
  Scorer scorer_;
  Sweep sweep_;
  Best best_;
};

}  // namespace

SearchResult search(const SearchRequest& request, const StageCosts& costs,
                    const ServingModel& serving) {
  const auto start = std::chrono::steady_clock::now();
  SearchResult result;
  Run run(request, costs, serving, goal_of(request.workload.objective));
  run.search(result);
  if (!result.found) {
    Run closest(request, costs, serving, Goal::closest);
    closest.search(result);
  }
  run.explain(serving, result);
  const std::chrono::duration<double, std::milli> passed = std::chrono::steady_clock::now() - start;
  result.search_ms = passed.count();
  return result;
}

Candidate evaluate(const SearchRequest& request, const StageCosts& costs,
                   const ServingModel& serving, const Layout& layout) {
  const Space space = make_space(request, costs);
  const Scorer scorer(space, request.workload, serving, goal_of(request.workload.objective));
  check_layout(space, request, layout);
  const Candidate made = make_candidate(space, costs, scorer, layout);
  refuse("layout " + layout_text(layout), memory_problems(space, made));
  return made;
}

}  // namespace weft::planner
