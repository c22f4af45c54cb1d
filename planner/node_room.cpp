// An unbounded knapsack a class: parts of u GPUs are worth u and cost the nodes of R copies.
#include "planner/node_room.h"

namespace weft::planner {
namespace {

constexpr size_t kMostNodes = 256;  // of a class; with more the rounding hardly counts

}  // namespace

NodeRoom::NodeRoom(const Space& space, size_t n_replicas)
    : space_(space), n_replicas_(n_replicas), most_(space.nodes.size()) {
  for (size_t c = 0; c < space.nodes.size(); ++c) {
    const NodeClass& node = space.nodes[c];
    if (node.count <= kMostNodes) {
      std::vector<size_t>& most = most_[c];
      most.assign(node.count + 1, 0);
      for (size_t u = 1; u <= node.gpus; ++u) {
        const size_t cost = space.nodes_taken(c, u, n_replicas);
        for (size_t n = cost; n <= node.count; ++n) most[n] = std::max(most[n], most[n - cost] + u);
      }
    }
    gpus_ += of_class(c, node.count);
  }
}

size_t NodeRoom::of_class(size_t node_class, size_t nodes) const {
  const std::vector<size_t>& most = most_[node_class];
  return most.empty() ? nodes * space_.nodes[node_class].gpus / n_replicas_ : most[nodes];
}

size_t NodeRoom::gpus(const std::vector<uint32_t>& nodes_left, size_t node_class,
                      size_t used) const {
  size_t sum = 0;
  for (size_t c = 0; c < nodes_left.size(); ++c) sum += of_class(c, nodes_left[c]);
  if (used == 0) return sum;
  const size_t left = nodes_left[node_class];
  const size_t before = sum - of_class(node_class, left);
  const size_t taken = space_.nodes_taken(node_class, used, n_replicas_);
  for (size_t more = 1; used + more <= space_.nodes[node_class].gpus; ++more) {
    const size_t cost = space_.nodes_taken(node_class, used + more, n_replicas_) - taken;
    if (cost > left) break;
    sum = std::max(sum, before + more + of_class(node_class, left - cost));
  }
  return sum;
}

}  // namespace weft::planner
