// hwloc's XML as it is read, before doubts and guesses: the live machine adds to it first.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "parallel/topology.h"

namespace weft::parallel {

struct HwlocReading {
  Topology topology;  // not finished
  std::vector<NvLinkEnd> links;
};

// Throws Error "where:line: …".
HwlocReading read_hwloc_xml(std::string_view text, const std::string& where);

}  // namespace weft::parallel
