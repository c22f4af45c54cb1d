// A cluster file for the planner from what each node says of itself.
#pragma once

#include <string>
#include <vector>

#include "parallel/mpi_session.h"
#include "parallel/topology.h"
#include "planner/cluster_spec.h"

namespace weft::launch {

struct NodeFacts {
  planner::NodeClass node;          // count 1, named by its GPUs: "h100-sxm-8"
  std::vector<std::string> doubts;  // what was taken for granted, not found
};

// GPUs, memory, links and cards of one node in the planner's terms. A node without GPUs is `cpu`
// ranks, one a NUMA node. What the topology doesn't tell (a file has no memory sizes; no latency is
// measured) is taken from the GPU model's data sheet, with a doubt. Throws Error where the GPUs are
// of a model that the planner doesn't know, or of several.
NodeFacts node_facts(const parallel::Topology& topology);

// Equal nodes become one class with their number, in order of first appearance.
planner::ClusterSpec make_cluster(const std::string& name,
                                  const std::vector<planner::NodeClass>& nodes);

// One entry a node, in the nodes' order, on every rank; a collective call. Doubts of all nodes are
// joined, each once.
struct GatheredFacts {
  std::vector<planner::NodeClass> nodes;
  std::vector<std::string> doubts;
};
GatheredFacts gather_facts(const parallel::MpiSession& session, const NodeFacts& mine);

}  // namespace weft::launch
