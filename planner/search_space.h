// What the search may choose from: the kinds of stage that a cluster and a model allow, the grid of
// schedules, and how many nodes so many equal replicas take.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "planner/search.h"

namespace weft::planner {

// A kind of stage, all but its layers.
struct Kind {
  size_t node_class = 0;
  size_t tp = 1;
  size_t ep = 1;
  size_t n_nodes = 1;       // that the TP group spans
  size_t gpus_in_node = 1;  // of the group, in each of them
  size_t width = 0;         // index in Space::widths
  size_t port = 0;          // index of (class, tp): what an edge depends on
};

struct Space {
  size_t n_layers = 0;
  size_t most_stages = 0;
  size_t most_gpus = 0;      // of all replicas
  size_t most_replicas = 0;  // no more than there are requests
  size_t n_nodes = 0;
  bool separate_groups = false;  // also replicas with prefill and decode groups
  bool shares_hosts = false;     // times depend on how many ranks of a node compute at once
  size_t most_node_gpus = 0;
  std::vector<NodeClass> nodes;
  std::vector<Kind> kinds;
  std::vector<size_t> widths;  // of the kinds, ascending
  size_t n_ports = 0;
  std::vector<size_t> chunks;
  double concurrency = 0;  // of the whole cluster; 0 = as many as fit
  size_t prompt_tokens = 0;
  size_t sequence_blocks = 0;  // KV blocks of prompt and output
  size_t prompt_blocks = 0;
  size_t context_blocks = 0;  // that the cache holds at least
  // Traffic between nodes, bytes of one request: over an edge in each phase, of the handed-over KV.
  double prefill_edge_bytes = 0;
  double decode_edge_bytes = 0;
  double handover_bytes = 0;

  // One of `at_work` stages of the cluster that compute at the same time.
  StageShape shape(const Kind& kind, size_t layers, bool first, bool last,
                   size_t at_work = 1) const {
    return {layers,       first,
            last,         kind.tp,
            kind.ep,      kind.node_class,
            kind.n_nodes, ranks_at_once(kind.node_class, kind.gpus_in_node, at_work)};
  }
  // Ranks of a node that compute at once where stages of so many ranks in it do: the node is taken
  // to be filled with such stages, as layouts fill nodes one after the other.
  size_t ranks_at_once(size_t node_class, size_t ranks, size_t at_work) const {
    return shares_hosts ? std::min(nodes[node_class].gpus, ranks * at_work) : 0;
  }
  // Stages that compute at the same time: as many of each replica as have a batch in flight; 1
  // where that makes no difference.
  size_t stages_at_work(const Schedule& schedule, size_t n_replicas, size_t n_prefill,
                        size_t n_stages) const;
  // KV blocks that a stage must hold for a batch of full sequences; of a stage that only prefills,
  // two prompts: the one that is computed and the one that is handed over.
  size_t kv_floor(size_t batch, bool only_prefills) const;
  // Largest batch that makes sense for one of R replicas: a place for each of its requests.
  size_t most_batch(size_t n_replicas) const;
  // Requests that one of R replicas holds.
  double replica_concurrency(size_t n_replicas, size_t batch) const {
    return concurrency == 0 ? static_cast<double>(batch)
                            : concurrency / static_cast<double>(n_replicas);
  }
  // Nodes of a class that R copies of a part of `gpus` GPUs take.
  size_t nodes_taken(size_t node_class, size_t gpus, size_t n_replicas) const {
    const size_t copies = nodes[node_class].gpus / gpus;  // in one node
    return (n_replicas + copies - 1) / copies;
  }
};

inline constexpr double kNever = std::numeric_limits<double>::infinity();
inline constexpr size_t kMostBatch = size_t{1} << 20;

// Throws Error with every problem of the request.
Space make_space(const SearchRequest& request, const StageCosts& costs);

// R for which every class has nodes enough, at most `most`; 0 where not even one fits.
size_t most_replicas(const Space& space, const Layout& layout, size_t most);

}  // namespace weft::planner
