// The sweep over families.
#include "planner/uniform_layouts.h"

#include <algorithm>
#include <set>

namespace weft::planner {
namespace {

size_t ends_of(const StageShape& shape) {
  return (shape.has_embedding ? kFirst : kMiddle) | (shape.has_head ? kLast : kMiddle);
}

size_t replica_gpus(const Layout& layout) {
  size_t gpus = 0;
  for (const PlacedStage& stage : layout.stages) gpus += stage.shape.tp;
  return gpus;
}

// Edges between nodes; families have one group.
double traffic(const Space& space, const Layout& layout) {
  const double bytes = space.prefill_edge_bytes + space.decode_edge_bytes;
  double sum = static_cast<double>(layout.stages.back().part) * bytes;
  for (const PlacedStage& stage : layout.stages)
    sum += 2.0 * static_cast<double>(stage.layers.size() * (stage.shape.n_nodes - 1)) * bytes;
  return sum;
}

std::vector<size_t> replica_counts(size_t most) {
  std::vector<size_t> counts;
  for (size_t n = 1; n < most; n *= 2) counts.push_back(n);
  if (most > 0) counts.push_back(most);
  return counts;
}

}  // namespace

std::vector<Family> families(const Space& space) {
  std::vector<Family> made;
  for (size_t k = 0; k < space.kinds.size(); ++k) {
    const Kind& kind = space.kinds[k];
    const size_t most = std::min({space.most_stages, space.n_layers, space.most_gpus / kind.tp});
    for (size_t p = 1; p <= most; ++p)
      if (most_replicas(space, uniform_layout(space, {k, p}), 1) == 1) made.push_back({k, p});
  }
  return made;
}

Layout uniform_layout(const Space& space, const Family& family) {
  const Kind& kind = space.kinds[family.kind];
  const size_t p = family.n_stages;
  const size_t in_node =
      kind.n_nodes > 1 ? 1 : space.nodes[kind.node_class].gpus / kind.tp;  // stages of a node
  Layout layout;
  size_t next = 0;
  for (size_t s = 0; s < p; ++s) {
    const size_t n = space.n_layers / p + (s < space.n_layers % p ? 1 : 0);
    layout.stages.push_back(
        {Role::both, {next, next + n}, space.shape(kind, n, s == 0, s + 1 == p), s / in_node});
    next += n;
  }
  return layout;
}

void Sweep::run() {
  for (const Family& family : families(space_)) run_family(family);
  std::stable_sort(best_.begin(), best_.end(),
                   [](const SweptLayout& a, const SweptLayout& b) { return a.score < b.score; });
}

void Sweep::run_family(const Family& family) {
  SweptLayout best;
  Layout layout = uniform_layout(space_, family);
  const size_t most = most_replicas(space_, layout, space_.most_replicas);
  for (const size_t n : replica_counts(most)) {
    layout.n_replicas = n;
    for (size_t batch = 1; batch <= space_.most_batch(n); batch *= 2) {
      layout.schedule.batch = batch;
      if (!could_fit(family, layout)) break;
      run_batch(family, layout, best);
    }
  }
  if (best.score.value < kNever) best_.push_back(std::move(best));
}

void Sweep::run_batch(const Family& family, Layout& layout, SweptLayout& best) {
  const size_t batch = layout.schedule.batch;
  SweptLayout now;
  now.gpus = replica_gpus(layout) * layout.n_replicas;
  const double bytes = traffic(space_, layout);
  const std::set<size_t> in_flight = {1, std::min(family.n_stages, batch),
                                      std::min(2 * family.n_stages, batch)};
  for (const size_t m : in_flight) {
    for (const size_t chunk : space_.chunks) {
      layout.schedule = {batch, m, chunk};
      now.layout.n_replicas = layout.n_replicas;
      now.served = scorer_.served(times_of(family, layout), layout.schedule, layout.n_replicas);
      now.score = scorer_.score(now.served, layout.schedule, layout.n_replicas, now.gpus, bytes);
      const bool better = now.score < best.score;
      if (!better && (!scorer_.meets_limits(now.served) || is_beaten(now))) continue;
      if (!fits(layout)) continue;
      now.layout = layout;
      if (better) best = now;
      if (scorer_.meets_limits(now.served)) offer(now);
    }
  }
}

PipelineTimes Sweep::times_of(const Family& family, const Layout& layout) {
  const size_t at_work =
      space_.stages_at_work(layout.schedule, layout.n_replicas, 0, layout.stages.size());
  const TimeTable& prefill = tables_.prefill(layout.schedule.prefill_chunk, at_work);
  const TimeTable& decode = tables_.decode(batch_in_flight(layout.schedule), at_work);
  const Kind& kind = space_.kinds[family.kind];
  PipelineTimes times;
  times.n_stages = layout.stages.size();
  times.kv_blocks = space_.kv_floor(layout.schedule.batch, false);
  for (size_t s = layout.stages.size(); s-- > 0;) {
    const PlacedStage& stage = layout.stages[s];
    double prefill_ms = prefill.stage(family.kind, ends_of(stage.shape))[stage.layers.size()];
    double decode_ms = decode.stage(family.kind, ends_of(stage.shape))[stage.layers.size()];
    if (s + 1 < layout.stages.size()) {
      const bool across = stage.part != layout.stages[s + 1].part;
      prefill_ms += prefill.edge_ms[prefill.edge_index(kind, kind, across)];
      decode_ms += decode.edge_ms[decode.edge_index(kind, kind, across)];
    }
    times.prefill_sum_ms += prefill_ms;
    times.prefill_max_ms = std::max(times.prefill_max_ms, prefill_ms);
    times.decode_sum_ms += decode_ms;
    times.decode_max_ms = std::max(times.decode_max_ms, decode_ms);
  }
  return times;
}

bool Sweep::could_fit(const Family& family, const Layout& layout) {
  const Capacities& most = tables_.most_capacities(space_.kv_floor(layout.schedule.batch, false));
  return std::all_of(layout.stages.begin(), layout.stages.end(), [&](const PlacedStage& stage) {
    return stage.layers.size() <= most[family.kind * kEnds + ends_of(stage.shape)];
  });
}

bool Sweep::fits(const Layout& layout) const {
  const size_t blocks = space_.kv_floor(layout.schedule.batch, false);
  return std::all_of(layout.stages.begin(), layout.stages.end(), [&](const PlacedStage& stage) {
    return tables_.fits(stage.shape, layout.schedule, blocks);
  });
}

bool Sweep::is_beaten(const SweptLayout& swept) const {
  const double latency = scorer_.latency_ms(swept.served);
  const double rate = scorer_.tokens_per_s(swept.served, swept.layout.n_replicas);
  return std::any_of(front_.begin(), front_.end(), [&](const SweptLayout& other) {
    return scorer_.latency_ms(other.served) <= latency && other.gpus <= swept.gpus &&
           scorer_.tokens_per_s(other.served, other.layout.n_replicas) >= rate;
  });
}

void Sweep::offer(const SweptLayout& swept) {
  if (is_beaten(swept)) return;
  const double latency = scorer_.latency_ms(swept.served);
  const double rate = scorer_.tokens_per_s(swept.served, swept.layout.n_replicas);
  std::erase_if(front_, [&](const SweptLayout& other) {
    return latency <= scorer_.latency_ms(other.served) && swept.gpus <= other.gpus &&
           rate >= scorer_.tokens_per_s(other.served, other.layout.n_replicas);
  });
  front_.push_back(swept);
}

}  // namespace weft::planner
