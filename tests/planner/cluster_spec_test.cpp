// Cluster files: those that are shipped, reading back, and what is refused with its place.
#include "planner/cluster_spec.h"

#include <algorithm>
#include <filesystem>

#include "tests/planner/examples.h"

namespace weft::planner {
namespace {

const char* const kTwoKinds =
    "version: 1\n"
    "name: mixed\n"
    "nodes:\n"
    "  - {name: big, count: 3, gpus: 8, gpu: h100-sxm, gpu_memory_gib: 79.6, nvlink_gbps: 450,\n"
    "     pcie_gbps: 64, nic_count: 8, nic_gbps: 50, nic_latency_us: 5}\n"
    "  - {name: odd, gpus: 7, gpu: h200-sxm, gpu_memory_gib: 140.4, nvlink_gbps: 450,\n"
    "     nic_count: 1, nic_gbps: 25}\n";

TEST(ClusterYaml, EveryShippedFileIsReadAndNamedAsItself) {
  size_t n_files = 0;
  const std::string folder = std::string(WEFT_SOURCE_DIR) + "/configs/clusters";
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    const ClusterSpec cluster = read_cluster_yaml(entry.path());
    EXPECT_EQ(cluster.name, entry.path().stem());
    EXPECT_EQ(parse_cluster_yaml(to_yaml(cluster), "again"), cluster);
    ++n_files;
  }
  EXPECT_GE(n_files, 7u);
  const ClusterSpec two = read_cluster_yaml(folder + "/h100-2x8.yaml");
  EXPECT_EQ(n_gpus(two), 16u);
  EXPECT_EQ(two.nodes[0].gpu, "h100-sxm");
}

TEST(ClusterYaml, NodesThatDifferAreClassesOfTheirOwn) {
  const ClusterSpec cluster = parse_cluster_yaml(kTwoKinds, "c.yaml");
  ASSERT_EQ(cluster.nodes.size(), 2u);
  EXPECT_EQ(n_nodes(cluster), 4u);
  EXPECT_EQ(n_gpus(cluster), 31u);
  EXPECT_EQ(first_node(cluster, 1), 3u);
  EXPECT_EQ(cluster.nodes[1].count, 1u);
  EXPECT_EQ(cluster.nodes[1].pcie_gbps, 0);
  EXPECT_EQ(gpu_memory_bytes(cluster.nodes[1]) >> 20, 143769u);
  EXPECT_EQ(parse_cluster_yaml(to_yaml(cluster), "again"), cluster);
}

std::string error_with(const std::string& from, const std::string& to) {
  std::string text = kTwoKinds;
  const size_t at = text.find(from);
  EXPECT_NE(at, std::string::npos) << from;
  text.replace(at, from.size(), to);
  return error_of([&] { parse_cluster_yaml(text, "c.yaml"); });
}

TEST(ClusterYaml, SaysWhatIsWrongAndWhere) {
  EXPECT_EQ(error_with("gpu: h100-sxm", "gpu: h100-smx"),
            "c.yaml:4:41: gpu: \"h100-smx\" is none of h100-sxm, h100-pcie, h200-sxm, a100-sxm, "
            "a100-pcie, cpu (did you mean \"h100-sxm\"?)");
  EXPECT_EQ(error_with("count: 3", "count: 0"),
            "c.yaml:4:24: count: \"0\" is not a whole number from 1 to 1000000");
  EXPECT_SAYS(error_with("gpus: 8", "gpus: -8"), "c.yaml:4:33: gpus: \"-8\" is not a whole number");
  EXPECT_SAYS(error_with("gpus: 7, ", ""), "c.yaml:6:5: nodes[1]: key \"gpus\" is missing");
  EXPECT_SAYS(error_with("gpus: 7", "gpu_count: 7"), "unknown key \"gpu_count\" in nodes[1]");
  EXPECT_SAYS(error_with("gpu_memory_gib: 79.6", "gpu_memory_gib: 0"), "0: a GPU has memory");
  EXPECT_SAYS(error_with("gpu_memory_gib: 79.6, ", ""), "\"gpu_memory_gib\" is missing");
  EXPECT_SAYS(error_with("nic_gbps: 50", "nic_gbps: -50"),
              "c.yaml:5:45: nic_gbps: -50 is negative");
  EXPECT_SAYS(error_with("nic_gbps: 50", "nic_gbps: .inf"), "is not a finite number");
  EXPECT_SAYS(error_with("version: 1", "version: 2"), "2 is not read; this weft reads 1");
  EXPECT_SAYS(error_with("nodes:\n", "nodes: [\n"), "malformed YAML");
  EXPECT_SAYS(error_with("count: 3", "count: 99999999999999999999"), "c.yaml:4:24");
}

TEST(ClusterYaml, ListsEveryBrokenRule) {
  EXPECT_EQ(error_with("nic_count: 8", "nic_count: 0"),
            "c.yaml: nodes \"big\": no network to the other nodes: give nic_count and nic_gbps");
  EXPECT_SAYS(error_with("name: odd", "name: big"), "two classes of nodes are called \"big\"");
  EXPECT_SAYS(error_with("count: 3", "count: 1000000"), "8000007 GPUs; at most 1000000");
  const std::string both = error_of([] {
    parse_cluster_yaml(
        "version: 1\nname: x\nnodes: [{gpus: 2, count: 2, gpu: cpu, gpu_memory_gib: 1e6}]\n",
        "c.yaml");
  });
  EXPECT_SAYS(both, "3 problems");
  EXPECT_SAYS(both, "gpu_memory_gib 1000000 is not from 0 to 65536");
  EXPECT_SAYS(both, "2 GPUs and no link between them");
  EXPECT_SAYS(error_of([] { parse_cluster_yaml("version: 1\nname: x\nnodes: []\n", "c"); }),
              "a cluster has at least one");
}

TEST(ClusterSpec, AMillionGpusAreCounted) {
  ClusterSpec cluster = parse_cluster_yaml(kTwoKinds, "c.yaml");
  cluster.nodes.pop_back();
  cluster.nodes[0].count = 125'000;
  EXPECT_TRUE(problems(cluster).empty());
  cluster.nodes[0].gpu = "h300";
  EXPECT_SAYS(problems(cluster).at(0), "unknown GPU \"h300\"");
}

}  // namespace
}  // namespace weft::planner
