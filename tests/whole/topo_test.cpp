// `weft topo` and binding as a user meets them, alone and under mpirun.
#include <gtest/gtest.h>

#include "planner/cluster_spec.h"
#include "runtime/base/file.h"
#include "tests/support/command.h"

namespace weft::test {
namespace {

constexpr int kSeconds = 30;
const std::string kDemo = WEFT_SOURCE_DIR "/configs/models/demo";

size_t n_times(const std::string& text, const std::string& word) {
  size_t n = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++n;
  return n;
}

TEST(Topo, RanksOfALauncherSayItOnce) {
  const CommandResult result = run_weft(3, {"topo", "--ranks", "1", "--cpu"}, kSeconds);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(n_times(result.out, "this machine: "), 1u) << result.out;
}

TEST(Topo, ClusterOfOneHostIsOneNode) {
  const TemporaryFolder folder;
  const CommandResult result =
      run_weft(3, {"topo", "--cluster", "-o", folder / "cluster.yaml"}, kSeconds);
  ASSERT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(result.out, "");
  const planner::ClusterSpec cluster = planner::read_cluster_yaml(folder / "cluster.yaml");
  ASSERT_EQ(cluster.nodes.size(), 1u);
  EXPECT_EQ(cluster.nodes[0].count, 1u);
  EXPECT_GT(cluster.nodes[0].gpu_memory_gib, 0);
}

TEST(Topo, BadFilesAndPathsEndWithStatusTwo) {
  const TemporaryFolder folder;
  write_file(folder / "deep.xml",
             "<topology version=\"2.0\"><object type=\"Machine\" cpuset=\"0xg\"/>");
  const CommandResult bad = run_weft(1, {"topo", "--from", folder / "deep.xml"}, kSeconds);
  EXPECT_EQ(bad.status, 2);
  EXPECT_NE(bad.err.find("deep.xml:1"), std::string::npos) << bad.err;
  EXPECT_EQ(bad.out, "");
  const CommandResult nowhere =
      run_weft(2, {"topo", "--cluster", "-o", folder / "no/such.yaml"}, kSeconds);
  EXPECT_EQ(nowhere.status, 2) << nowhere.err;
  EXPECT_FALSE(nowhere.timed_out);
  EXPECT_EQ(n_times(nowhere.err, "no/such.yaml"), 1u) << nowhere.err;
  const CommandResult slip = run_weft(1, {"topo", "--form", "x.xml"}, kSeconds);
  EXPECT_EQ(slip.status, 2);
  EXPECT_NE(slip.err.find("--from"), std::string::npos) << slip.err;
}

// Where a rank runs changes nothing of what it says.
TEST(Binding, LeavesTheTextAsItIs) {
  const std::vector<std::string> run = {"run",      "--model",      kDemo, "--prompt",
                                        "import o", "--max-tokens", "6",   "--verbose"};
  std::vector<std::string> unbound = run;
  unbound.push_back("--no-bind");
  const CommandResult with = run_weft(2, run, kSeconds);
  const CommandResult without = run_weft(2, unbound, kSeconds);
  EXPECT_EQ(with.status, 0) << with.err;
  EXPECT_EQ(without.status, 0) << without.err;
  EXPECT_EQ(with.out, without.out);
  EXPECT_EQ(without.err.find("on CPUs"), std::string::npos) << without.err;
}

}  // namespace
}  // namespace weft::test
