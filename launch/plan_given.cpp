#include "launch/plan_given.h"

#include <algorithm>
#include <tuple>

#include "planner/layout_figures.h"
#include "planner/problem_list.h"
#include "planner/search_report.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace weft::launch {
namespace {

using planner::Candidate;
using planner::Layout;
using planner::NodeClass;
using planner::Objective;
using planner::Role;
using planner::Schedule;

constexpr size_t kMostGivenBatch = 4096;

// The next free GPUs, node by node.
class Placer {
 public:
  explicit Placer(const planner::ClusterSpec& cluster) : nodes_(cluster.nodes) {}

  void place(size_t tp, planner::PlacedStage& stage, bool tp_across_nodes) {
    const size_t n_nodes = tp_across_nodes ? (tp + gpus() - 1) / gpus() : 1;
    const size_t in_node = (tp + n_nodes - 1) / n_nodes;
    if (!empty_ && (n_nodes > 1 || used_ + in_node > gpus())) next_node(last_nodes_);
    while (in_node > gpus() && class_ + 1 < nodes_.size()) next_class();
    stage.shape.tp = tp;
    stage.shape.n_nodes = n_nodes;
    stage.shape.node_class = class_;
    stage.part = part_;
    used_ += in_node;
    last_nodes_ = n_nodes;
    empty_ = false;
    if (n_nodes > 1) used_ = gpus();
  }

 private:
  size_t gpus() const { return nodes_[class_].gpus; }
  void next_node(size_t n) {
    ++part_;
    used_ = 0;
    empty_ = true;
    node_ += n;
    if (node_ >= nodes_[class_].count && class_ + 1 < nodes_.size()) next_class();
  }
  void next_class() {
    if (!empty_) ++part_;
    ++class_;
    node_ = used_ = 0;
    empty_ = true;
  }

  const std::vector<NodeClass>& nodes_;
  size_t class_ = 0, node_ = 0, used_ = 0, part_ = 0, last_nodes_ = 1;
  bool empty_ = true;
};

void add_group(const std::vector<planner::StageLayout>& stages, Role role, const PlanCase& of,
               Placer& placer, Layout& layout) {
  const size_t n_layers = of.request.model.n_layers;
  size_t next = 0;
  for (const planner::StageLayout& wanted : stages) {
    planner::PlacedStage& stage = layout.stages.emplace_back();
    stage.role = role;
    stage.layers = {next, next + wanted.n_layers};
    next = stage.layers.end;
    placer.place(wanted.tp, stage, of.request.tp_across_nodes);
    stage.shape.n_layers = wanted.n_layers;
    stage.shape.has_embedding = stage.layers.begin == 0;
    stage.shape.has_head = stage.layers.end == n_layers;
  }
}

// Smaller is better, as the search orders candidates.
std::tuple<bool, double, double> order(const Candidate& made, Objective objective) {
  const bool throughput = objective == Objective::throughput;
  return {!made.meets_limits, throughput ? -made.tokens_per_s : made.latency_ms,
          throughput ? made.latency_ms : -made.tokens_per_s};
}

std::vector<size_t> powers_to(size_t most) {
  std::vector<size_t> values;
  for (size_t value = 1; value <= most; value *= 2) values.push_back(value);
  return values;
}

std::vector<size_t> counts_to(size_t most) {
  std::vector<size_t> values;
  for (size_t value = 1; value <= most; ++value) values.push_back(value);
  return values;
}

std::vector<size_t> only(const std::optional<size_t>& fixed, std::vector<size_t> values) {
  return fixed ? std::vector<size_t>{*fixed} : values;
}

// The part of the grid that is left.
std::vector<Schedule> schedules_for(const planner::Space& space, const Layout& layout,
                                    const PlanOptions& fixed) {
  const size_t most_batch = std::min(space.most_batch(layout.n_replicas), kMostGivenBatch);
  std::vector<Schedule> all;
  for (const size_t batch : only(fixed.max_sequences, powers_to(most_batch))) {
    const size_t most_in_flight = std::min(2 * layout.stages.size(), batch);
    for (const size_t in_flight : only(fixed.batches_in_flight, counts_to(most_in_flight)))
      for (const size_t chunk : only(fixed.prefill_chunk, space.chunks))
        all.push_back({batch, in_flight, chunk});
  }
  return all;
}

}  // namespace

Layout place(const std::vector<planner::StageLayout>& stages, const PlanCase& of) {
  Layout layout;
  Placer placer(of.request.cluster);
  add_group(stages, Role::both, of, placer, layout);
  return layout;
}

Layout parse_placed(const std::string& text, const PlanCase& of) {
  std::string_view rest = text;
  Layout layout;
  if (const size_t star = rest.find('*'); star != std::string_view::npos) {
    layout.n_replicas =
        parse_count(rest.substr(0, star), fmt::format("layout \"{}\": replicas", text),
                    planner::kMostClusterGpus);
    rest.remove_prefix(star + 1);
  }
  const std::vector<std::string> groups = split(rest, '|');
  if (groups.size() > 2)
    throw input_error("layout \"{}\": one group, or one that prefills | one that decodes", text);
  Placer placer(of.request.cluster);
  for (size_t g = 0; g < groups.size(); ++g) {
    const Role role = groups.size() == 1 ? Role::both : g == 0 ? Role::prefill : Role::decode;
    add_group(planner::parse_layout(groups[g]), role, of, placer, layout);
  }
  return layout;
}

Candidate predict(const PlanCase& of, Layout layout, const PlanOptions& fixed) {
  const planner::SearchRequest& request = of.request;
  const planner::Space space = planner::make_space(request, of.costs());
  const planner::Scorer scorer(space, request.workload, *of.serving, planner::Goal::latency);
  layout.schedule = {1, 1, space.chunks.front()};
  check_layout(space, request, layout);
  const Objective objective = request.workload.objective;
  std::optional<Candidate> best;
  std::vector<std::string> short_of_room;  // of the first that is
  for (const Schedule& schedule : schedules_for(space, layout, fixed)) {
    layout.schedule = schedule;
    Candidate made = make_candidate(space, of.costs(), scorer, layout);
    std::vector<std::string> found = memory_problems(space, made);
    if (!found.empty()) {
      if (short_of_room.empty()) short_of_room = std::move(found);
    } else if (!best || order(made, objective) < order(*best, objective)) {
      best = std::move(made);
    }
  }
  if (!best) planner::refuse("layout " + layout_text(layout), short_of_room);
  return *best;
}

}  // namespace weft::launch
