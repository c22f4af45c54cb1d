// The outer loop of the search.
#include "planner/best_first.h"

#include <algorithm>
#include <cmath>

namespace weft::planner {
namespace {

constexpr size_t kMostCounted = 4096;  // replicas for which idle GPUs of nodes are counted

}  // namespace

void BestFirst::run(Best& best) {
  for (const ReplicaRange& range : replica_ranges()) bound_range(range, best);
  std::sort(items_.begin(), items_.end(),
            [](const Item& a, const Item& b) { return a.bound < b.bound; });
  for (const Item& item : items_) {
    if (!may_beat(item.bound, best.score)) break;
    if (!expand(item, best)) return give_up(item.bound, best);
  }
}

std::vector<BestFirst::ReplicaRange> BestFirst::replica_ranges() const {
  std::vector<ReplicaRange> ranges;
  const size_t useful = space_.most_stages * space_.widths.back();
  const size_t most = std::min(space_.most_replicas, space_.most_gpus / space_.widths.front());
  for (size_t n = most; n > 0; n = ranges.back().least - 1) {
    const bool counted = n <= kMostCounted;
    const size_t whole = std::min(useful, space_.most_gpus / n);
    const size_t gpus = counted ? std::min(whole, NodeRoom(space_, n).gpus()) : whole;
    if (ranges.empty() || ranges.back().gpus != gpus) ranges.push_back({n, n, gpus});
    ranges.back().least = counted ? n : std::max(kMostCounted, space_.most_gpus / (gpus + 1)) + 1;
    if (gpus == useful) ranges.back().least = 1;
  }
  return ranges;
}

void BestFirst::bound_range(const ReplicaRange& range, const Best& best) {
  const size_t most = std::min(space_.most_stages, range.gpus / space_.widths.front());
  for (size_t p = 1; p <= std::min(most, space_.n_layers); ++p) {
    bound_stages(range, 0, p, best);
    for (size_t q = 1; options_.separate_groups && p + q <= most && q <= space_.n_layers; ++q)
      bound_stages(range, q, p, best);
  }
}

// All schedules of a number of stages. Larger batches need more memory, so the first that has no
// room is the last.
void BestFirst::bound_stages(const ReplicaRange& range, size_t n_prefill, size_t n_stages,
                             const Best& best) {
  const size_t narrowest = space_.widths.front();
  const size_t prefill_most = n_prefill == 0 ? 0 : range.gpus - n_stages * narrowest;
  const size_t decode_most = range.gpus - n_prefill * narrowest;
  Item item;
  item.replicas = range;
  item.chain.n_prefill = n_prefill;
  item.chain.n_stages = n_stages;
  item.chain.decode_gpus = decode_most;
  for (size_t batch = 1; batch <= space_.most_batch(range.least); batch *= 2) {
    if (!decode_bounds({batch, batch, 1}).covers(n_stages, decode_most)) return;
    most_batch_ = std::max(most_batch_, batch);
    for (size_t m = 1; m <= std::min(2 * n_stages, batch); ++m) {
      for (const size_t chunk : space_.chunks) {
        item.chain.schedule = {batch, m, chunk};
        if (n_prefill == 0)
          bound_joint(item, best);
        else
          bound_separate(item, n_prefill * narrowest, prefill_most, best);
      }
    }
  }
}

void BestFirst::bound_joint(Item& item, const Best& best) {
  item.bound = bound(item);
  if (may_beat(item.bound, best.score)) items_.push_back(item);
}

// Halves the range of the prefill group's GPUs until a part can't beat the best, or is one number.
void BestFirst::bound_separate(Item& item, size_t least, size_t most, const Best& best) {
  item.chain.prefill_gpus = most;
  item.chain.decode_gpus = item.replicas.gpus - least;
  item.bound = bound(item);
  if (!may_beat(item.bound, best.score)) return;
  if (least == most) return items_.push_back(item);
  const size_t middle = least + (most - least) / 2;
  bound_separate(item, least, middle, best);
  bound_separate(item, middle + 1, most, best);
}

// With the times of the most replicas and the GPUs of the fewest. Where GPUs are the score, the
// fewest with which the bounds of the times meet the limits.
Score BestFirst::bound(const Item& item) {
  ChainItem chain = item.chain;
  const size_t fewest = (chain.n_prefill + chain.n_stages) * space_.widths.front();
  const Score all = bound_with(item, chain, fewest);
  if (scorer_.goal() != Goal::gpus || all.value == kNever || chain.n_prefill > 0) return all;
  size_t low = fewest, high = chain.decode_gpus;
  while (low < high) {
    chain.decode_gpus = low + (high - low) / 2;
    if (bound_with(item, chain, fewest).value < kNever)
      high = chain.decode_gpus;
    else
      low = chain.decode_gpus + 1;
  }
  return bound_with(item, item.chain, low);
}

Score BestFirst::bound_with(const Item& item, const ChainItem& chain, size_t replica_gpus) {
  ++n_bounds_;
  const bool separate = chain.n_prefill > 0;
  const Schedule& schedule = chain.schedule;
  const size_t at_work =
      space_.stages_at_work(schedule, item.replicas.least, chain.n_prefill, chain.n_stages);
  const PhaseBound decode = decode_bounds({schedule.batch, batch_in_flight(schedule), at_work})
                                .least(chain.n_stages, chain.decode_gpus);
  const PhaseBound prefill = separate
                                 ? prefill_bounds({0, schedule.prefill_chunk, at_work})
                                       .least(chain.n_prefill, chain.prefill_gpus)
                                 : prefill_bounds({schedule.batch, schedule.prefill_chunk, at_work})
                                       .least(chain.n_stages, chain.decode_gpus);
  PipelineTimes times;
  times.prefill_sum_ms = prefill.sum;
  times.prefill_max_ms = prefill.most;
  times.decode_sum_ms = decode.sum;
  times.decode_max_ms = decode.most;
  times.n_stages = chain.n_stages;
  times.kv_blocks = space_.kv_floor(schedule.batch, false);
  times.separate_groups = separate;
  return scorer_.score(times, schedule, item.replicas.most, item.replicas.least * replica_gpus, 0);
}

// Joint prefill is bounded with the memory that the batch leaves.
const GroupBounds& BestFirst::prefill_bounds(const Sizes& sizes) {
  const auto found = prefill_bounds_.find(sizes);
  if (found != prefill_bounds_.end()) return found->second;
  const bool own = sizes.batch == 0;
  const auto tail = own ? GroupBounds::Tail::handover : GroupBounds::Tail::none;
  const Capacities& capacities = tables_.most_capacities(space_.kv_floor(sizes.batch, own));
  return prefill_bounds_
      .try_emplace(sizes, space_, tables_.prefill(sizes.size, sizes.at_work), capacities, tail)
      .first->second;
}

const GroupBounds& BestFirst::decode_bounds(const Sizes& sizes) {
  const auto found = decode_bounds_.find(sizes);
  if (found != decode_bounds_.end()) return found->second;
  const Capacities& capacities = tables_.most_capacities(space_.kv_floor(sizes.batch, false));
  return decode_bounds_
      .try_emplace(sizes, space_, tables_.decode(sizes.size, sizes.at_work), capacities,
                   GroupBounds::Tail::none)
      .first->second;
}

// More replicas are never worse but by their GPUs and by what they share, so the most come first.
// False where the work's bound came first.
bool BestFirst::expand(const Item& item, Best& best) {
  Item one = item;
  for (size_t n = item.replicas.most; n >= item.replicas.least; --n) {
    if (item.chain.schedule.batch > space_.most_batch(n)) continue;
    one.replicas.least = one.replicas.most = n;
    if (!may_beat(bound(one), best.score)) {
      if (scorer_.goal() == Goal::gpus || space_.shares_hosts) continue;
      return true;
    }
    one.chain.n_replicas = n;
    if (!chains_.run(one.chain, best)) return false;
  }
  return true;
}

void BestFirst::give_up(const Score& bound, const Best& best) {
  proved_ = false;
  const bool comparable = best.score.value < kNever && best.score.value != 0;
  gap_ = comparable ? (best.score.value - bound.value) / std::abs(best.score.value) : 1;
}

}  // namespace weft::planner
