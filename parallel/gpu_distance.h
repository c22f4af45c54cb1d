// How far apart PCI devices are, by the way between them, and what follows: a GPU's nearest cards,
// the cost of a message between two GPUs.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/topology.h"

namespace weft::parallel {

enum class PciDistance {
  same_switch,  // a PCI bridge is on both ways
  same_root,    // they meet at the root complex
  same_node,    // two root complexes of one NUMA node
  across,       // over the link between NUMA nodes, or it isn't known
};

PciDistance pci_distance(const Topology& topology, const PciDevice& a, const PciDevice& b);
std::string_view distance_name(PciDistance distance);  // "switch", "root", "node", "across"

// Cards at the smallest distance from the GPU, by bus id.
std::vector<size_t> nearest_cards(const Topology& topology, const Gpu& gpu);

// "NVLink x18", "NVLink" where they aren't counted, "" where there is none or none is known.
std::string nvlink_text(const Topology& topology, unsigned n_links);

// The way between two GPUs of a host as nvidia-smi names it: "NVLink x18" where there is one, else
// PIX (one PCI bridge), PXB (several), PHB (the root complex), NODE (two of one NUMA node), SYS
// (between NUMA nodes, or unknown).
std::string way_between(const Topology& topology, size_t gpu_a, size_t gpu_b);

// What a tensor-parallel group pays for having both GPUs in it, in no unit: NVLinks first, more of
// them cheaper, then the way over PCI, then the bridges on it.
int pair_cost(const Topology& topology, size_t gpu_a, size_t gpu_b);

// Indices of the GPUs so that near ones are neighbours: by NUMA node, root, way, bus id.
std::vector<size_t> gpus_by_place(const Topology& topology);

}  // namespace weft::parallel
