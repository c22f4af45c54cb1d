// A topology as the tree that people draw of it: machine, NUMA nodes, root complexes, switches,
// devices. Bridges that lead to one device alone are left out; chains of them are one.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "parallel/placement.h"
#include "parallel/topology.h"

namespace weft::launch {

struct TopoNode {
  enum class Kind { machine, numa, root, bridge, gpu, card, other };
  Kind kind = Kind::machine;
  std::string name;    // "NUMA 0", "GPU 3"
  std::string detail;  // "0000:1b:00.0, H100 SXM5 80GB, 63 GB/s"
  size_t device = 0;   // index of a GPU or card
  std::vector<TopoNode> children;
};

TopoNode topo_tree(const parallel::Topology& topology);

// "dgx.xml: 2 packages, 112 cores, 224 CPUs, 2 NUMA nodes".
std::string machine_text(const parallel::Topology& topology);

// "ranks 0, 4": the local ranks on a GPU; empty where there is none.
std::string ranks_on(const parallel::Placement& placement, size_t gpu);

}  // namespace weft::launch
