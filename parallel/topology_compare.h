// A topology file against the machine that it is meant for: NCCL takes NCCL_TOPO_FILE at its word,
// and a file of another machine's makes ranks slow without a word.
#pragma once

#include <string>
#include <vector>

#include "parallel/topology.h"

namespace weft::parallel {

// A sentence for each NUMA node whose CPUs are others, each GPU that only one of them has or that
// is near another NUMA node. Only CPUs that may be used are compared.
std::vector<std::string> differences(const Topology& machine, const Topology& file);

}  // namespace weft::parallel
