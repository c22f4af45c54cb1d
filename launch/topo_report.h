// What `weft topo` says of a host: text for people, JSON for programs.
#pragma once

#include <string>

#include "parallel/placement.h"
#include "parallel/topology.h"

namespace weft::launch {

// The tree, distances between GPUs, NVLink, doubts.
std::string topology_text(const parallel::Topology& topology);

// {"source", "cpus", "numa", "roots", "gpus", "cards", "distances", "nvlinks", "doubts"} and, with
// a placement, "ranks", in one line. Rates in GB/s, sizes in bytes, sets as lists "0-3,8".
std::string topology_json(const parallel::Topology& topology, const parallel::Placement* placement);

}  // namespace weft::launch
