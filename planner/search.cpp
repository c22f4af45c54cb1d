// Best first: the sweep over families gives a first best; every combination of replicas, stages and
// schedule is bounded from below; those that could still beat the best are searched exactly, the
// most promising first, until none is left that could.
#include "planner/search.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <map>

#include "planner/chain_search.h"
#include "planner/layout_figures.h"
#include "planner/problem_list.h"
#include "planner/search_report.h"
#include "planner/uniform_layouts.h"

namespace weft::planner {
namespace {

// Numbers of replicas that leave a replica the same number of GPUs at most.
struct ReplicaRange {
  size_t most = 1, least = 1;
  size_t gpus = 1;  // of a replica, at most
};

std::vector<ReplicaRange> replica_ranges(const Space& space) {
  std::vector<ReplicaRange> ranges;
  const size_t useful = space.most_stages * space.widths.back();
  const size_t most = std::min(space.most_replicas, space.most_gpus / space.widths.front());
  for (size_t n = most; n > 0; n = ranges.back().least - 1) {
    const size_t gpus = std::min(useful, space.most_gpus / n);
    const size_t least = gpus == useful ? 1 : space.most_gpus / (gpus + 1) + 1;
    ranges.push_back({n, std::min(n, least), gpus});
  }
  return ranges;
}

// What is bounded as a whole: all layouts of so many replicas, stages and GPUs under one schedule.
struct Item {
  Score bound;
  ReplicaRange replicas;
  ChainItem chain;
};

class BestFirst {
 public:
  BestFirst(const Space& space, StageTables& tables, const Scorer& scorer, bool separate,
            size_t max_work)
      : space_(space),
        tables_(tables),
        scorer_(scorer),
        separate_(separate),
        max_work_(max_work),
        chains_(space, tables, scorer) {}

  void run(Best& best) {
    for (const ReplicaRange& range : replica_ranges(space_)) bound_range(range, best);
    std::sort(items_.begin(), items_.end(),
              [](const Item& a, const Item& b) { return a.bound < b.bound; });
    for (const Item& item : items_) {
      if (!may_beat(item.bound, best.score)) break;
      if (max_work_ > 0 && chains_.n_expanded() >= max_work_) return give_up(item.bound, best);
      expand(item, best);
    }
  }

  bool proved() const { return proved_; }
  double gap() const { return gap_; }
  size_t n_bounds() const { return n_bounds_; }
  size_t most_batch() const { return most_batch_; }  // for which some layout has memory
  ChainSearch& chains() { return chains_; }

 private:
  using Key = std::pair<size_t, size_t>;

  void bound_range(const ReplicaRange& range, const Best& best) {
    const size_t most = std::min(space_.most_stages, range.gpus / space_.widths.front());
    for (size_t p = 1; p <= std::min(most, space_.n_layers); ++p) {
      bound_stages(range, 0, p, best);
      for (size_t q = 1; separate_ && p + q <= most && q <= space_.n_layers; ++q)
        bound_stages(range, q, p, best);
    }
  }

  // All schedules of a number of stages. Larger batches need more memory, so the first that has no
  // room is the last.
  void bound_stages(const ReplicaRange& range, size_t n_prefill, size_t n_stages,
                    const Best& best) {
    const size_t narrowest = space_.widths.front();
    Item item;
    item.replicas = range;
    item.chain.n_prefill = n_prefill;
    item.chain.n_stages = n_stages;
    const size_t prefill_most = n_prefill == 0 ? 0 : range.gpus - n_stages * narrowest;
    const size_t decode_most = range.gpus - n_prefill * narrowest;
    item.chain.decode_gpus = decode_most;
    Schedule& schedule = item.chain.schedule;
    for (size_t batch = 1; batch <= space_.most_batch(range.least); batch *= 2) {
      if (!decode_bounds(batch, batch).covers(n_stages, decode_most)) return;
      most_batch_ = std::max(most_batch_, batch);
      for (size_t m = 1; m <= std::min(2 * n_stages, batch); ++m) {
        for (const size_t chunk : space_.chunks) {
          schedule = {batch, m, chunk};
          if (n_prefill == 0)
            bound_joint(item, best);
          else
            bound_separate(item, n_prefill * narrowest, prefill_most, best);
        }
      }
    }
  }

  void bound_joint(Item& item, const Best& best) {
    const ChainItem& chain = item.chain;
    const size_t gpus = chain.decode_gpus;
    const GroupBounds& decode =
        decode_bounds(chain.schedule.batch, batch_in_flight(chain.schedule));
    const GroupBounds& prefill = prefill_bounds(chain.schedule.batch, chain.schedule.prefill_chunk);
    size_t fewest = chain.n_stages * space_.widths.front();
    if (scorer_.goal() == Goal::gpus) fewest = decode.least_gpus(chain.n_stages, gpus);
    item.bound = bound(item, item.replicas.most, prefill.least(chain.n_stages, gpus),
                       decode.least(chain.n_stages, gpus), fewest);
    if (may_beat(item.bound, best.score)) items_.push_back(item);
  }

  // Halves the range of the prefill group's GPUs until a part can't beat the best, or is one
  // number.
  void bound_separate(Item& item, size_t least, size_t most, const Best& best) {
    ChainItem& chain = item.chain;
    const GroupBounds& decode =
        decode_bounds(chain.schedule.batch, batch_in_flight(chain.schedule));
    const GroupBounds& prefill = prefill_bounds(0, chain.schedule.prefill_chunk);
    chain.prefill_gpus = most;
    chain.decode_gpus = item.replicas.gpus - least;
    const size_t fewest = least + chain.n_stages * space_.widths.front();
    item.bound = bound(item, item.replicas.most, prefill.least(chain.n_prefill, most),
                       decode.least(chain.n_stages, chain.decode_gpus), fewest);
    if (!may_beat(item.bound, best.score)) return;
    if (least == most) return items_.push_back(item);
    const size_t middle = least + (most - least) / 2;
    bound_separate(item, least, middle, best);
    bound_separate(item, middle + 1, most, best);
  }

  // With the times of `n_replicas` and the GPUs of the fewest replicas.
  Score bound(const Item& item, size_t n_replicas, const PhaseBound& prefill,
              const PhaseBound& decode, size_t replica_gpus) {
    ++n_bounds_;
    PipelineTimes times;
    times.prefill_sum_ms = prefill.sum;
    times.prefill_max_ms = prefill.most;
    times.decode_sum_ms = decode.sum;
    times.decode_max_ms = decode.most;
    times.n_stages = item.chain.n_stages;
    times.kv_blocks = space_.kv_floor(item.chain.schedule.batch, false);
    times.separate_groups = item.chain.n_prefill > 0;
    return scorer_.score(times, item.chain.schedule, n_replicas, item.replicas.least * replica_gpus,
                         0);
  }

  // Joint prefill is bounded with the memory that the batch leaves; batch 0 = a group of its own.
  const GroupBounds& prefill_bounds(size_t batch, size_t chunk) {
    const auto found = prefill_bounds_.find({batch, chunk});
    if (found != prefill_bounds_.end()) return found->second;
    const bool own = batch == 0;
    const auto tail = own ? GroupBounds::Tail::handover : GroupBounds::Tail::none;
    const Capacities& capacities = tables_.most_capacities(space_.kv_floor(batch, own));
    return prefill_bounds_
        .try_emplace({batch, chunk}, space_, tables_.prefill(chunk), capacities, tail)
        .first->second;
  }

  const GroupBounds& decode_bounds(size_t batch, size_t in_flight) {
    const auto found = decode_bounds_.find({batch, in_flight});
    if (found != decode_bounds_.end()) return found->second;
    const Capacities& capacities = tables_.most_capacities(space_.kv_floor(batch, false));
    return decode_bounds_
        .try_emplace({batch, in_flight}, space_, tables_.decode(in_flight), capacities,
                     GroupBounds::Tail::none)
        .first->second;
  }

  // More replicas are never worse but by their GPUs, so the most come first.
  void expand(const Item& item, Best& best) {
    Item one = item;
    const size_t batch = item.chain.schedule.batch;
    for (size_t n = item.replicas.most; n >= item.replicas.least; --n) {
      if (batch > space_.most_batch(n)) continue;
      one.replicas.least = one.replicas.most = n;
      if (!may_beat(bound_again(one), best.score)) {
        if (scorer_.goal() == Goal::gpus) continue;
        return;
      }
      one.chain.n_replicas = n;
      chains_.run(one.chain, best);
    }
  }

  Score bound_again(const Item& item) {
    const ChainItem& chain = item.chain;
    const bool separate = chain.n_prefill > 0;
    const size_t n_prefill = separate ? chain.n_prefill : chain.n_stages;
    const size_t gpus = (chain.n_prefill + chain.n_stages) * space_.widths.front();
    const size_t batch = chain.schedule.batch;
    const PhaseBound prefill =
        prefill_bounds(separate ? 0 : batch, chain.schedule.prefill_chunk)
            .least(n_prefill, separate ? chain.prefill_gpus : chain.decode_gpus);
    const PhaseBound decode = decode_bounds(batch, batch_in_flight(chain.schedule))
                                  .least(chain.n_stages, chain.decode_gpus);
    return bound(item, item.replicas.most, prefill, decode, gpus);
  }

  void give_up(const Score& bound, const Best& best) {
    proved_ = false;
    gap_ = best.score.value < kNever && best.score.value != 0
               ? (best.score.value - bound.value) / std::abs(best.score.value)
               : 1;
  }

  const Space& space_;
  StageTables& tables_;
  const Scorer& scorer_;
  bool separate_;
  size_t max_work_;
  ChainSearch chains_;
  std::map<Key, GroupBounds> prefill_bounds_, decode_bounds_;
  std::vector<Item> items_;
  size_t n_bounds_ = 0;
  size_t most_batch_ = 0;
  bool proved_ = true;
  double gap_ = 0;
};

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

// One goal, searched to the end. The best's score is kNever where nothing fits or meets the limits.
class Run {
 public:
  Run(const SearchRequest& request, const StageCosts& costs, const ServingModel& serving, Goal goal)
      : request_(request),
        costs_(costs),
        space_(make_space(request)),
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
    BestFirst search(space_, tables_, scorer_, request_.separate_groups, work_of(request_));
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
    refuse_memory(space_, tables_, costs_, scorer_, result.refused);
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
    const std::string first = family_text(result.best.layout);
    for (const SweptLayout& swept : sweep_.best()) {
      if (result.ranked.size() >= request_.n_ranked) break;
      if (family_text(swept.layout) == first) continue;
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
  const Space space = make_space(request);
  const Scorer scorer(space, request.workload, serving, goal_of(request.workload.objective));
  check_layout(space, request, layout);
  const Candidate made = make_candidate(space, costs, scorer, layout);
  refuse("layout " + layout_text(layout), memory_problems(space, made));
  return made;
}

}  // namespace weft::planner
