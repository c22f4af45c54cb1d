// `weft topo` as a user calls it, on the nodes of tests/data/topologies.
#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "launch/commands.h"
#include "launch/topo_cluster.h"
#include "parallel/topology_sources.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"

namespace weft::launch {
namespace {

struct Outcome {
  std::string out;
  std::string err;
  std::string error;
};

Outcome topo(std::vector<std::string> words) {
  CLI::App app;
  add_topo_command(app);
  words.insert(words.begin(), "topo");
  std::reverse(words.begin(), words.end());  // as CLI11 takes them
  Outcome outcome;
  ::testing::internal::CaptureStdout();
  ::testing::internal::CaptureStderr();
  try {
    app.parse(words);
  } catch (const std::exception& error) {
    outcome.error = error.what();
  }
  outcome.out = ::testing::internal::GetCapturedStdout();
  outcome.err = ::testing::internal::GetCapturedStderr();
  return outcome;
}

std::string node(const std::string& name) {
  return WEFT_SOURCE_DIR "/tests/data/topologies/" + name + ".xml";
}

void expect_parts(const std::string& text, const std::vector<std::string>& parts) {
  for (const std::string& part : parts)
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
}

class TopoCommandTest : public ::testing::Test {
 protected:
  TopoCommandTest()
      : folder_(std::filesystem::temp_directory_path() /
                fmt::format("weft-topo-{}-{}", getpid(),
                            ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    std::filesystem::create_directories(folder_);
  }
  ~TopoCommandTest() override { std::filesystem::remove_all(folder_); }
  std::string file(const std::string& name) const { return folder_ / name; }

  std::filesystem::path folder_;
};

TEST_F(TopoCommandTest, ShowsAFilesNode) {
  const Outcome outcome = topo({"--from", node("two-per-bridge"), "--ranks", "4", "--tp", "2"});
  EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(outcome.err, "");
  expect_parts(
      outcome.out,
      {"2 packages, 24 cores, 48 CPUs, 2 NUMA nodes, 8 GPUs",
       "NUMA 1  CPUs 12-23,36-47, 12 cores, 64.00 GiB",
       "    switch  0000:10:01.0 > 0000:11:00.0\n      GPU 0  0000:13:00.0, A100 SXM4 80GB",
       "NVLink is not known", "\n4 ranks\n", "group: ranks 2-3: PCI switch"});
}

TEST_F(TopoCommandTest, ShowsThisMachine) {
  const Outcome outcome = topo({});
  EXPECT_EQ(outcome.error, "");
  expect_parts(outcome.out, {"this machine: ", "NUMA 0  CPUs "});
  EXPECT_EQ(topo({"--ranks", "1", "--cpu"}).error, "");
}

TEST_F(TopoCommandTest, JsonHoldsAll) {
  const Outcome outcome =
      topo({"--from", node("dgx-h100"), "--ranks", "8", "--json", "--visible", "7,6,5,4,3,2,1,0"});
  EXPECT_EQ(outcome.error, "");
  const nlohmann::json json = nlohmann::json::parse(outcome.out);
  EXPECT_EQ(json["gpus"].size(), 8u);
  EXPECT_EQ(json["gpus"][4]["bus_id"], "0000:9d:00.0");
  EXPECT_EQ(json["gpus"][4]["nearest_cards"][0], "0000:9e:00.0");
  EXPECT_EQ(json["distances"][0][1], "node");
  EXPECT_EQ(json["ranks"][5]["gpu"], "0000:c3:00.0");
  EXPECT_EQ(json["ranks"][5]["cpus"], "70-83,182-195");
  EXPECT_EQ(json["ranks"][5]["memory_nodes"][0], 1);
  EXPECT_EQ(json["numa"][1]["memory_bytes"], uint64_t{64} << 30);
  EXPECT_TRUE(json["doubts"].empty()) << json["doubts"];
}

TEST_F(TopoCommandTest, DrawsFilesAndNothingElse) {
  const Outcome outcome = topo({"--from", node("nccl-nvlink-pairs"), "--ranks", "4", "--dot",
                                file("a.dot"), "--svg", file("a.svg")});
  EXPECT_EQ(outcome.error, "");
  const std::string dot = read_text(file("a.dot"), 1 << 20);
  expect_parts(dot, {"graph topology {", "subgraph cluster_0", "GPU 3", "rank 3", "NVLink x12"});
  EXPECT_EQ(std::count(dot.begin(), dot.end(), '{'), std::count(dot.begin(), dot.end(), '}'));
  const std::string svg = read_text(file("a.svg"), 1 << 20);
  expect_parts(svg, {"<svg xmlns", "0000:e3:00.0", "rank 1", "0-2 NVLink x12", "</svg>"});
}

TEST_F(TopoCommandTest, RefusesWhatCantBe) {
  EXPECT_NE(topo({"--from", file("none.xml")}).error.find("none.xml"), std::string::npos);
  write_file(file("x.xml"), "<topology version=\"2.0\"><object");
  EXPECT_NE(topo({"--from", file("x.xml")}).error.find("x.xml:1:"), std::string::npos);
  expect_parts(topo({"--from", node("one-gpu"), "--ranks", "2"}).error, {"2 ranks for 1 GPU"});
  expect_parts(topo({"--from", node("one-gpu"), "--ranks", "0"}).error, {"--ranks"});
  expect_parts(topo({"--tp", "2"}).error, {"--ranks"});
  expect_parts(topo({"--cluster", "--ranks", "2"}).error, {"--ranks"});
  const Outcome nowhere = topo({"--from", node("one-gpu"), "--svg", file("no/such/a.svg")});
  expect_parts(nowhere.error, {"cannot write"});
  EXPECT_EQ(nowhere.out, "");
}

TEST_F(TopoCommandTest, ClusterFileIsReadBack) {
  const Outcome outcome = topo({"--from", node("dgx-h100"), "--cluster", "-o", file("c.yaml")});
  EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(outcome.out, "");
  expect_parts(outcome.err,
               {"doubt: gpu_memory_gib", "doubt: nvlink_gbps", "doubt: nic_latency_us"});
  const planner::ClusterSpec cluster = planner::read_cluster_yaml(file("c.yaml"));
  ASSERT_EQ(cluster.nodes.size(), 1u);
  const planner::NodeClass& found = cluster.nodes[0];
  EXPECT_EQ(found.name, "h100-sxm-8");
  EXPECT_EQ(found.gpu, "h100-sxm");
  EXPECT_EQ(found.gpus, 8u);
  EXPECT_EQ(found.nic_count, 8u) << "the ninth is far from all GPUs";
  EXPECT_EQ(found.nic_gbps, 50);
  EXPECT_EQ(found.nvlink_gbps, 450);
  EXPECT_EQ(found.pcie_gbps, 63);
}

TEST_F(TopoCommandTest, ClusterOfCpusAndOfUnknownGpus) {
  const Outcome cpus = topo({"--from", node("no-gpu"), "--cluster"});
  EXPECT_EQ(cpus.error, "");
  const planner::ClusterSpec cluster = planner::parse_cluster_yaml(cpus.out, "stdout");
  EXPECT_EQ(cluster.nodes[0].gpu, "cpu");
  EXPECT_EQ(cluster.nodes[0].gpus, 2u) << "one a NUMA node";
  EXPECT_EQ(cluster.nodes[0].gpu_memory_gib, 64);
  expect_parts(topo({"--from", node("sixteen-gpus"), "--cluster"}).error, {"V100", "h100-sxm"});
}

TEST_F(TopoCommandTest, LinkedPairsAreNoNvLinkForAll) {
  const NodeFacts facts = node_facts(parallel::read_topology(node("nccl-nvlink-pairs")));
  EXPECT_EQ(facts.node.nvlink_gbps, 0);
  EXPECT_EQ(facts.node.gpu, "a100-sxm");
}

TEST(MakeCluster, JoinsEqualNodes) {
  planner::NodeClass a, b;
  a.name = b.name = "h100-sxm-8";
  a.gpus = 8;
  b.gpus = 8;
  b.nic_count = 4;
  const planner::ClusterSpec cluster = make_cluster("c", {a, b, a, a, b});
  ASSERT_EQ(cluster.nodes.size(), 2u);
  EXPECT_EQ(cluster.nodes[0].count, 3u);
  EXPECT_EQ(cluster.nodes[1].count, 2u);
  EXPECT_NE(cluster.nodes[0].name, cluster.nodes[1].name);
}

}  // namespace
}  // namespace weft::launch
