// How many GPUs of a cluster one of R equal replicas can have: parts of a replica share nodes with
// the copies of themselves alone, so a node of g GPUs holds floor(g / u) copies of a part of u and
// leaves the rest idle.
#pragma once

#include <vector>

#include "planner/search_space.h"

namespace weft::planner {

class NodeRoom {
 public:
  NodeRoom(const Space& space, size_t n_replicas);

  // Of all nodes, over all classes; at least what any layout of so many replicas takes.
  size_t gpus() const { return gpus_; }
  // The same of so many nodes of each class, and of the free part of a node of `node_class` in
  // which `used` GPUs a copy are taken (0: no such node).
  size_t gpus(const std::vector<uint32_t>& nodes_left, size_t node_class, size_t used) const;

 private:
  size_t of_class(size_t node_class, size_t nodes) const;

  const Space& space_;
  size_t n_replicas_;
  std::vector<std::vector<size_t>> most_;  // [class][nodes]; empty where there are too many nodes
  size_t gpus_ = 0;
};

}  // namespace weft::planner
