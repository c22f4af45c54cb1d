// A layout given by hand, held against the model and the cluster.
#include <fmt/format.h>

#include "planner/counted.h"
#include "planner/problem_list.h"
#include "planner/search_report.h"
#include "planner/shard_shapes.h"

namespace weft::planner {
namespace {

using Problems = std::vector<std::string>;

void check_layers(const Space& space, const Layout& layout, Problems& found) {
  size_t next = 0;
  for (size_t s = 0; s < layout.stages.size(); ++s) {
    const PlacedStage& stage = layout.stages[s];
    const bool new_group = s > 0 && layout.stages[s - 1].role != stage.role;
    if (new_group && next == space.n_layers) next = 0;
    if (stage.layers.begin != next || stage.layers.end <= next)
      found.push_back(fmt::format("stage {}: layers [{}, {}) do not follow layer {}", s,
                                  stage.layers.begin, stage.layers.end, next));
    const StageShape& shape = stage.shape;
    const bool has_head = stage.layers.end == space.n_layers;
    if (shape.n_layers != stage.layers.size() || shape.has_embedding != (stage.layers.begin == 0) ||
        shape.has_head != has_head)
      found.push_back(fmt::format("stage {}: its shape is not that of its layers", s));
    next = stage.layers.end;
  }
  if (next != space.n_layers)
    found.push_back(
        fmt::format("the stages have {} layers, the model has {}", next, space.n_layers));
}

void check_stage(const Space& space, const SearchRequest& request, size_t s,
                 const PlacedStage& stage, Problems& found) {
  const StageShape& shape = stage.shape;
  if (shape.node_class >= space.nodes.size()) {
    found.push_back(
        fmt::format("stage {}: node class {} of {}", s, shape.node_class, space.nodes.size()));
    return;
  }
  const std::string problem = tp_problem(request.model, shape.tp, request.invariant);
  if (!problem.empty()) found.push_back(fmt::format("stage {}: {}", s, problem));
  const NodeClass& node = space.nodes[shape.node_class];
  if (shape.n_nodes == 0 || shape.tp % shape.n_nodes != 0 || shape.tp / shape.n_nodes > node.gpus)
    found.push_back(fmt::format("stage {}: TP {} does not lie in {} of {}", s, shape.tp,
                                counted(shape.n_nodes, "node"), counted(node.gpus, "GPU")));
  if (shape.ep == 0 || shape.tp % shape.ep != 0)
    found.push_back(fmt::format("stage {}: EP {} does not divide TP {}", s, shape.ep, shape.tp));
}

// Stages that share a node must have room in it.
void check_parts(const Space& space, const Layout& layout, Problems& found) {
  for (size_t s = 0; s < layout.stages.size();) {
    const size_t part = layout.stages[s].part;
    const size_t node_class = layout.stages[s].shape.node_class;
    const size_t first = s;
    size_t gpus = 0;
    bool alone = true;
    for (; s < layout.stages.size() && layout.stages[s].part == part; ++s) {
      const StageShape& shape = layout.stages[s].shape;
      gpus += shape.tp / shape.n_nodes;
      alone &= shape.node_class == node_class && (s == first || shape.n_nodes == 1);
    }
    if (!alone || gpus > space.nodes[node_class].gpus)
      found.push_back(fmt::format("stages {} to {} use {} of one node of {}", first, s - 1,
                                  counted(gpus, "GPU"), space.nodes[node_class].gpus));
  }
}

}  // namespace

void check_layout(const Space& space, const SearchRequest& request, const Layout& layout) {
  Problems found;
  if (layout.stages.empty()) found.push_back("no stages");
  const Schedule& schedule = layout.schedule;
  if (schedule.batch == 0 || schedule.batches_in_flight == 0 || schedule.prefill_chunk == 0 ||
      layout.n_replicas == 0)
    found.push_back("replicas, batch, batches in flight and prefill chunk are at least 1");
  for (size_t s = 0; s < layout.stages.size(); ++s)
    check_stage(space, request, s, layout.stages[s], found);
  if (found.empty()) check_layers(space, layout, found);
  if (found.empty()) check_parts(space, layout, found);
  refuse("layout", found);
  if (most_replicas(space, layout, layout.n_replicas) < layout.n_replicas)
    throw input_error("layout {}: {}, of which {} may be used: no room for {}", layout_text(layout),
                      counted(n_gpus(request.cluster), "GPU"), space.most_gpus,
                      counted(layout.n_replicas, "replica"));
}

}  // namespace weft::planner
