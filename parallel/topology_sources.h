// Where a topology comes from. Files are hostile: sizes are bounded, and what can't be is refused
// with its line.
#pragma once

#include <string>
#include <string_view>

#include "parallel/topology.h"

namespace weft::parallel {

// hwloc's XML, version 2 or 3 (a doubt says so: another hwloc reads it than wrote it). Version 1 is
// refused. Throws Error.
Topology parse_hwloc_xml(std::string_view text, const std::string& where);

// NCCL's topology XML (NCCL_TOPO_FILE, NCCL_TOPO_DUMP_FILE) of one host. Throws Error.
Topology parse_nccl_xml(std::string_view text, const std::string& where);

// Either of the two, by its root element. Throws Error.
Topology parse_topology(std::string_view text, const std::string& where);
Topology read_topology(const std::string& path);

// This machine: hwloc for CPUs and PCI, NVML, where its library is there, for names, UUIDs, memory
// and NVLink. Where NCCL_TOPO_FILE is set, doubts say how it differs. Without devices CPUs and NUMA
// nodes alone, which takes a fraction of the time. Throws Error.
enum class Devices { no, yes };
Topology live_topology(Devices devices);

}  // namespace weft::parallel
