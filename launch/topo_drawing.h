// Drawings of a topology: Graphviz's DOT, and SVG without Graphviz.
#pragma once

#include <string>

#include "parallel/placement.h"
#include "parallel/topology.h"

namespace weft::launch {

// placement: ranks are written on their GPUs; may hold none.
std::string topology_dot(const parallel::Topology& topology, const parallel::Placement& placement);
std::string topology_svg(const parallel::Topology& topology, const parallel::Placement& placement);

}  // namespace weft::launch
