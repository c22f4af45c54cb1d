// Sums run from the last stage to the first, as in the search: the same bits.
#include "planner/layout_figures.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "planner/memory_model.h"

namespace weft::planner {
namespace {

struct Edge {
  StageTimes ms;
  double handover_ms = 0;
  double bytes = 0;  // between nodes
};

// From stage s to the one after it.
Edge edge_after(const Space& space, const StageCosts& costs, const Layout& layout, size_t s) {
  Edge edge;
  if (s + 1 == layout.stages.size()) return edge;
  const PlacedStage& from = layout.stages[s];
  const PlacedStage& to = layout.stages[s + 1];
  const EdgeShape shape = edge_between(from, to);
  if (from.role != to.role) {
    edge.handover_ms = costs.handover_ms(shape, from.layers.size(), layout.schedule);
    edge.bytes = shape.across_nodes ? space.handover_bytes : 0;
    return edge;
  }
  edge.ms = costs.edge(shape, layout.schedule);
  const double bytes = (from.role != Role::decode ? space.prefill_edge_bytes : 0) +
                       (from.role != Role::prefill ? space.decode_edge_bytes : 0);
  edge.bytes = shape.across_nodes ? bytes : 0;
  return edge;
}

double group_bytes(const Space& space, const PlacedStage& stage) {
  if (stage.shape.n_nodes == 1) return 0;
  const double bytes = (stage.role != Role::decode ? space.prefill_edge_bytes : 0) +
                       (stage.role != Role::prefill ? space.decode_edge_bytes : 0);
  return 2.0 * static_cast<double>(stage.layers.size() * (stage.shape.n_nodes - 1)) * bytes;
}

StageFigures figures_of(const StageCosts& costs, const Layout& layout, size_t s) {
  const StageShape& shape = layout.stages[s].shape;
  StageFigures figures;
  figures.fixed_bytes = costs.fixed_bytes(shape, layout.schedule);
  figures.fixed_parts = costs.fixed_parts(shape, layout.schedule);
  figures.kv_block_bytes = costs.kv_block_bytes(shape);
  figures.rank_memory_bytes = costs.rank_memory_bytes(shape.node_class);
  if (figures.rank_memory_bytes > figures.fixed_bytes)
    figures.kv_blocks = (figures.rank_memory_bytes - figures.fixed_bytes) /
                        std::max<size_t>(1, figures.kv_block_bytes);
  return figures;
}

void add_times(const StageTimes& times, Role role, PipelineTimes& to, StageFigures& figures) {
  if (role != Role::decode) {
    figures.prefill_ms = times.prefill_ms;
    to.prefill_sum_ms += times.prefill_ms;
    to.prefill_max_ms = std::max(to.prefill_max_ms, times.prefill_ms);
  }
  if (role != Role::prefill) {
    figures.decode_ms = times.decode_ms;
    to.decode_sum_ms += times.decode_ms;
    to.decode_max_ms = std::max(to.decode_max_ms, times.decode_ms);
  }
}

size_t nodes_of(const Space& space, const Layout& layout) {
  size_t nodes = 0;
  for (size_t s = 0; s < layout.stages.size();) {
    const StageShape& shape = layout.stages[s].shape;
    const size_t part = layout.stages[s].part;
    size_t gpus = 0;
    for (; s < layout.stages.size() && layout.stages[s].part == part; ++s)
      gpus += layout.stages[s].shape.tp / shape.n_nodes;
    nodes += shape.n_nodes * space.nodes_taken(shape.node_class, gpus, layout.n_replicas);
  }
  return nodes;
}

// Says of each stage how many ranks of its node compute at once.
Layout with_ranks_at_once(const Space& space, Layout layout) {
  const auto n_prefill = static_cast<size_t>(
      std::count_if(layout.stages.begin(), layout.stages.end(),
                    [](const PlacedStage& stage) { return stage.role == Role::prefill; }));
  const size_t at_work = space.stages_at_work(layout.schedule, layout.n_replicas, n_prefill,
                                              layout.stages.size() - n_prefill);
  for (PlacedStage& stage : layout.stages) {
    StageShape& shape = stage.shape;
    shape.at_once = space.ranks_at_once(shape.node_class, shape.tp / shape.n_nodes, at_work);
  }
  return layout;
}

}  // namespace

EdgeShape edge_between(const PlacedStage& from, const PlacedStage& to) {
  return {from.shape.tp, to.shape.tp, from.shape.node_class, to.shape.node_class,
          from.part != to.part};
}

Candidate memory_only(const StageCosts& costs, const Layout& layout) {
  Candidate made;
  made.layout = layout;
  for (size_t s = 0; s < layout.stages.size(); ++s)
    made.stages.push_back(figures_of(costs, layout, s));
  return made;
}

Candidate make_candidate(const Space& space, const StageCosts& costs, const Scorer& scorer,
                         const Layout& given) {
  Candidate made;
  made.layout = with_ranks_at_once(space, given);
  const Layout& layout = made.layout;
  made.stages.resize(layout.stages.size());
  made.times.n_stages = 0;
  for (size_t s = layout.stages.size(); s-- > 0;) {
    const PlacedStage& stage = layout.stages[s];
    const Edge edge = edge_after(space, costs, layout, s);
    StageTimes times = costs.stage(stage.shape, layout.schedule);
    times.prefill_ms += edge.ms.prefill_ms + edge.handover_ms;
    times.decode_ms += edge.ms.decode_ms;
    made.stages[s] = figures_of(costs, layout, s);
    add_times(times, stage.role, made.times, made.stages[s]);
    made.traffic_bytes += edge.bytes + group_bytes(space, stage);
    made.gpus += stage.shape.tp * layout.n_replicas;
    if (stage.role != Role::prefill) ++made.times.n_stages;
    made.times.separate_groups |= stage.role == Role::prefill;
  }
  made.times.kv_blocks = space.kv_floor(layout.schedule.batch, false);
  made.served = scorer.served(made.times, layout.schedule, layout.n_replicas);
  made.latency_ms = scorer.latency_ms(made.served);
  made.tokens_per_s = scorer.tokens_per_s(made.served, layout.n_replicas);
  made.nodes = nodes_of(space, layout);
  made.meets_limits = scorer.meets_limits(made.served);
  return made;
}

std::vector<std::string> memory_problems(const Space& space, const Candidate& candidate) {
  std::vector<std::string> found;
  const Layout& layout = candidate.layout;
  for (size_t s = 0; s < layout.stages.size(); ++s) {
    const StageFigures& stage = candidate.stages[s];
    const bool only_prefills = layout.stages[s].role == Role::prefill;
    const size_t blocks = space.kv_floor(layout.schedule.batch, only_prefills);
    if (stage.kv_blocks >= blocks) continue;
    const double kv = static_cast<double>(blocks) * static_cast<double>(stage.kv_block_bytes);
    const double most = static_cast<double>(size_t{1} << 62);
    const auto kv_bytes = static_cast<size_t>(std::min(kv, most));
    std::string parts;
    for (const BytesPart& part : stage.fixed_parts)
      parts += fmt::format("{} {} + ", part.title, gib_text(part.bytes));
    found.push_back(fmt::format("stage {}: short {} GiB: {}KV {} of {} GiB", s,
                                gib_text(stage.fixed_bytes + kv_bytes - stage.rank_memory_bytes),
                                parts, gib_text(kv_bytes), gib_text(stage.rank_memory_bytes)));
  }
  return found;
}

}  // namespace weft::planner
