// Counts of a cluster and the rules its facts keep.
#include "planner/cluster_spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "runtime/base/text.h"

namespace weft::planner {
namespace {

constexpr double kMostMemoryGib = 65536;
constexpr double kMostRate = 100'000;  // GB/s
constexpr double kMostLatency = 1e6;   // µs
constexpr size_t kMostNodeCards = 1024;

using Problems = std::vector<std::string>;

void check_number(const NodeClass& node, std::string_view key, double value, double most,
                  Problems& found) {
  if (!(value >= 0) || value > most)
    found.push_back(
        fmt::format("nodes \"{}\": {} {} is not from 0 to {}", node.name, key, value, most));
}

void check_counts(const NodeClass& node, Problems& found) {
  const auto within = [&](std::string_view key, size_t value, size_t least, size_t most) {
    if (value < least || value > most)
      found.push_back(fmt::format("nodes \"{}\": {} {} is not from {} to {}", node.name, key, value,
                                  least, most));
  };
  within("count", node.count, 1, kMostClusterGpus);
  within("gpus", node.gpus, 1, kMostNodeGpus);
  within("nic_count", node.nic_count, 0, kMostNodeCards);
}

void check_links(const NodeClass& node, bool alone, Problems& found) {
  check_number(node, "nvlink_gbps", node.nvlink_gbps, kMostRate, found);
  check_number(node, "pcie_gbps", node.pcie_gbps, kMostRate, found);
  check_number(node, "nic_gbps", node.nic_gbps, kMostRate, found);
  check_number(node, "nic_latency_us", node.nic_latency_us, kMostLatency, found);
  if (node.gpus > 1 && node.nvlink_gbps == 0 && node.pcie_gbps == 0)
    found.push_back(
        fmt::format("nodes \"{}\": {} GPUs and no link between them: give nvlink_gbps "
                    "or pcie_gbps",
                    node.name, node.gpus));
  if (!alone && (node.nic_count == 0 || node.nic_gbps == 0))
    found.push_back(
        fmt::format("nodes \"{}\": no network to the other nodes: give nic_count and "
                    "nic_gbps",
                    node.name));
}

void check_node(const NodeClass& node, bool alone, Problems& found) {
  check_counts(node, found);
  if (std::find(std::begin(kGpuModels), std::end(kGpuModels), node.gpu) == std::end(kGpuModels))
    found.push_back(fmt::format("nodes \"{}\": unknown GPU \"{}\"{}; known: {}", node.name,
                                node.gpu, did_you_mean(node.gpu, kGpuModels),
                                fmt::join(kGpuModels, " ")));
  check_number(node, "gpu_memory_gib", node.gpu_memory_gib, kMostMemoryGib, found);
  if (node.gpu_memory_gib == 0)
    found.push_back(fmt::format("nodes \"{}\": gpu_memory_gib 0: a GPU has memory", node.name));
  check_links(node, alone, found);
}

}  // namespace

size_t n_nodes(const ClusterSpec& cluster) { return first_node(cluster, cluster.nodes.size()); }

size_t n_gpus(const ClusterSpec& cluster) {
  size_t n = 0;
  for (const NodeClass& node : cluster.nodes) n += node.count * node.gpus;
  return n;
}

size_t first_node(const ClusterSpec& cluster, size_t node_class) {
  size_t n = 0;
  for (size_t c = 0; c < node_class; ++c) n += cluster.nodes[c].count;
  return n;
}

size_t gpu_memory_bytes(const NodeClass& node) {
  return static_cast<size_t>(node.gpu_memory_gib * static_cast<double>(size_t{1} << 30));
}

std::vector<std::string> problems(const ClusterSpec& cluster) {
  Problems found;
  if (cluster.name.empty()) found.push_back("name is empty");
  if (cluster.nodes.empty()) found.push_back("nodes is empty: a cluster has at least one");
  if (cluster.nodes.size() > kMostNodeClasses)
    found.push_back(
        fmt::format("{} classes of nodes; at most {}", cluster.nodes.size(), kMostNodeClasses));
  if (!found.empty()) return found;
  std::set<std::string> names;
  const bool alone = cluster.nodes.size() == 1 && cluster.nodes.front().count == 1;
  for (const NodeClass& node : cluster.nodes) {
    if (!names.insert(node.name).second)
      found.push_back(fmt::format("two classes of nodes are called \"{}\"", node.name));
    check_node(node, alone, found);
  }
  // Counts within their ranges can't overflow the sum.
  if (found.empty() && n_gpus(cluster) > kMostClusterGpus)
    found.push_back(
        fmt::format("{} GPUs; at most {} are planned for", n_gpus(cluster), kMostClusterGpus));
  return found;
}

}  // namespace weft::planner
