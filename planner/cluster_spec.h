// Facts of a cluster: classes of equal nodes with their GPUs, memory and links. Nothing is measured
// here; the curves of a GPU model are in its machine profile.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace weft::planner {

// GPU models that a profile knows or will know; `cpu` counts the ranks that a host runs.
inline constexpr std::string_view kGpuModels[] = {"h100-sxm", "h100-pcie", "h200-sxm",
                                                  "a100-sxm", "a100-pcie", "cpu"};
inline constexpr size_t kMostClusterGpus = 1'000'000;
inline constexpr size_t kMostNodeClasses = 4096;
inline constexpr size_t kMostNodeGpus = 1024;

// Equal nodes. A node that differs in anything is a class of its own, with count 1. Rates are in
// GB/s (10^9 bytes a second) in one direction, of one GPU or one card; 0 = there is none.
struct NodeClass {
  std::string name;
  size_t count = 1;
  size_t gpus = 0;            // of one node
  std::string gpu;            // one of kGpuModels
  double gpu_memory_gib = 0;  // of one GPU, as its driver reports it
  double nvlink_gbps = 0;     // of one GPU to all its peers: 450 on an H100 SXM
  double pcie_gbps = 0;       // of one GPU
  size_t nic_count = 0;       // network cards of one node
  double nic_gbps = 0;        // of one card: 50 is 400 Gbit/s
  double nic_latency_us = 0;  // of one message between nodes

  bool operator==(const NodeClass&) const = default;
};

struct ClusterSpec {
  std::string name;
  std::vector<NodeClass> nodes;  // nodes are numbered through, class by class

  bool operator==(const ClusterSpec&) const = default;
};

size_t n_nodes(const ClusterSpec& cluster);
size_t n_gpus(const ClusterSpec& cluster);
size_t first_node(const ClusterSpec& cluster, size_t node_class);
size_t gpu_memory_bytes(const NodeClass& node);

// Every rule the facts break, one sentence each, with what to do.
std::vector<std::string> problems(const ClusterSpec& cluster);

// YAML, version 1. Throws Error with file, line and column (malformed, unknown key or GPU, zero or
// negative sizes), or with every broken rule.
ClusterSpec parse_cluster_yaml(std::string_view text, const std::string& where);
ClusterSpec read_cluster_yaml(const std::string& path);
std::string to_yaml(const ClusterSpec& cluster);

}  // namespace weft::planner
