// A cluster's facts as YAML, version 1.
#include <fmt/format.h>

#include "planner/cluster_spec.h"
#include "planner/problem_list.h"
#include "planner/yaml_reader.h"
#include "runtime/base/file.h"

namespace weft::planner {
namespace {

struct RateField {
  std::string_view key;
  double NodeClass::*field;
  std::string_view what;
};
constexpr RateField kRateFields[] = {
    {"gpu_memory_gib", &NodeClass::gpu_memory_gib, "of one GPU"},
    {"nvlink_gbps", &NodeClass::nvlink_gbps, "GB/s a direction, of one GPU; 0 = none"},
    {"pcie_gbps", &NodeClass::pcie_gbps, "GB/s a direction, of one GPU"},
    {"nic_gbps", &NodeClass::nic_gbps, "GB/s a direction, of one card (8 Gbit/s are 1)"},
    {"nic_latency_us", &NodeClass::nic_latency_us, "of one message between nodes"},
};

double rate(const YamlValue& value) {
  const double number = value.number();
  if (number < 0) throw value.error(fmt::format("{} is negative", number));
  return number;
}

NodeClass read_node(const YamlValue& map, size_t index) {
  constexpr std::string_view keys[] = {"name",           "count",         "gpus",      "gpu",
                                       "gpu_memory_gib", "nvlink_gbps",   "pcie_gbps", "nic_count",
                                       "nic_gbps",       "nic_latency_us"};
  map.keys(keys);
  NodeClass node;
  node.name = map.has("name") ? map.at("name").text() : fmt::format("nodes{}", index);
  if (map.has("count")) node.count = map.at("count").count(1, kMostClusterGpus);
  node.gpus = map.at("gpus").count(1, kMostNodeGpus);
  node.gpu = kGpuModels[map.at("gpu").choice(kGpuModels)];
  map.at("gpu_memory_gib");  // must be there: the same GPU is sold with several
  for (const RateField& field : kRateFields)
    if (map.has(field.key)) node.*field.field = rate(map.at(field.key));
  if (node.gpu_memory_gib == 0) throw map.at("gpu_memory_gib").error("0: a GPU has memory");
  if (map.has("nic_count")) node.nic_count = map.at("nic_count").count(0, kMostNodeGpus);
  return node;
}

std::string node_lines(const NodeClass& node) {
  std::string text = fmt::format("  - name: {}\n    count: {}\n    gpus: {}\n    gpu: {}\n",
                                 yaml_text(node.name), node.count, node.gpus, yaml_text(node.gpu));
  text += fmt::format("    nic_count: {}  # network cards of a node\n", node.nic_count);
  for (const RateField& field : kRateFields)
    text += fmt::format("    {}: {}  # {}\n", field.key, node.*field.field, field.what);
  return text;
}

}  // namespace

ClusterSpec parse_cluster_yaml(std::string_view text, const std::string& where) {
  constexpr std::string_view keys[] = {"version", "name", "nodes"};
  const YamlNode root = parse_yaml(text, where);
  const YamlValue map(root, where, "");
  map.keys(keys);
  map.at("version").only(1);
  ClusterSpec cluster;
  cluster.name = map.at("name").text();
  for (const YamlValue& node : map.at("nodes").list(kMostNodeClasses))
    cluster.nodes.push_back(read_node(node, cluster.nodes.size()));
  refuse(where, problems(cluster));
  return cluster;
}

ClusterSpec read_cluster_yaml(const std::string& path) {
  return parse_cluster_yaml(read_text(path, kMostYamlBytes), path);
}

std::string to_yaml(const ClusterSpec& cluster) {
  std::string text =
      "# A cluster of weft: what the planner may use. Nodes that differ are entries\n"
      "# of their own, with count 1.\n";
  text += fmt::format("version: 1\nname: {}\nnodes:{}\n", yaml_text(cluster.name),
                      cluster.nodes.empty() ? " []" : "");
  for (const NodeClass& node : cluster.nodes) text += node_lines(node);
  return text;
}

}  // namespace weft::planner
