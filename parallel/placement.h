// Where the ranks of a host sit: which GPU each takes, on which cores it runs, where its memory
// should lie, and why. Pure: what binding.h then does to the process, and `weft topo --ranks`
// shows.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "parallel/topology.h"

namespace weft::parallel {

struct RankPlace {
  std::optional<size_t> gpu;      // index into Topology::gpus; none: a rank on the CPU
  bool binds = false;             // false: `cpus` may be used by others too, and nothing is bound
  CpuSet cpus;                    // whole cores near the GPU
  CpuSet step_cpus;               // of the thread that runs the steps
  CpuSet helper_cpus;             // of I/O and helper threads: beside it where there is room
  std::vector<int> memory_nodes;  // NUMA nodes preferred for memory; empty: unknown
  std::vector<size_t> cards;      // nearest network cards, indices into Topology::cards
  std::string why;                // half a sentence for people
};

struct Placement {
  std::vector<RankPlace> ranks;
  std::vector<std::string> groups;  // what joins the GPUs of each tensor-parallel group
  std::vector<std::string> doubts;
};

struct PlacementRequest {
  size_t n_ranks = 0;
  bool use_gpus = true;              // false: ranks on CPUs, whatever GPUs there are
  bool share_gpus = false;           // more ranks than GPUs may share them
  std::vector<size_t> groups;        // sizes of the tensor-parallel groups in the ranks' order;
                                     // empty: one of all
  std::vector<size_t> visible_gpus;  // those that may be taken (visible_devices.h)
};

// Throws Error (status 2): no ranks, groups that are not the ranks, more ranks than GPUs.
Placement place(const Topology& topology, const PlacementRequest& request);

// Cores, memory and cards for ranks whose GPUs are settled. An empty entry is a rank on CPUs; such
// ranks are spread over the NUMA nodes.
Placement place_on(const Topology& topology, const std::vector<std::optional<size_t>>& gpus);

// "rank GPU root NUMA cores CPUs …" a line each, the groups, the doubts.
std::string placement_text(const Topology& topology, const Placement& placement);

}  // namespace weft::parallel
