// `weft bench calibrate` on this machine, coarse: what it writes is a profile that plans take. How
// good the figures are is scripts/bench_plan's to say, on a machine that does nothing else.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "planner/machine_profile.h"
#include "runtime/base/file.h"
#include "tests/support/command.h"

namespace weft {
namespace {

using nlohmann::json;
using planner::MachineProfile;
using test::CommandResult;
using test::run_weft;

const std::string kConfigs = std::string(WEFT_SOURCE_DIR) + "/configs";

CommandResult calibrate(int n_ranks, const std::string& path) {
  return run_weft(n_ranks, {"bench", "calibrate", "--quick", "--json", "-o", path});
}

CommandResult plan(const test::TemporaryFolder& folder, size_t ranks, const std::string& layout) {
  write_file(folder / "cluster.yaml",
             "version: 1\nname: here\nnodes: [{name: host, gpus: " + std::to_string(ranks) +
                 ", gpu: cpu, gpu_memory_gib: 4, pcie_gbps: 8}]\n");
  return run_weft(1, {"plan",
                      "--model",
                      kConfigs + "/models/demo",
                      "--cluster",
                      folder / "cluster.yaml",
                      "--machine-profile",
                      folder / "cpu.yaml",
                      "--configs",
                      kConfigs,
                      "--prompt-tokens",
                      "33",
                      "--output-tokens",
                      "16",
                      "--concurrency",
                      "1",
                      "--layout",
                      layout,
                      "--json",
                      "-o",
                      folder / "plan.yaml"});
}

// One rank has nobody to send to: plans of one rank are priced, others refused with what to do.
TEST(Calibrate, OneRankAlonePricesPlansOfOneRank) {
  const test::TemporaryFolder folder;
  const CommandResult made = calibrate(1, folder / "cpu.yaml");
  ASSERT_EQ(made.status, 0) << made.err;
  EXPECT_EQ(json::parse(made.out)["profile"], folder / "cpu.yaml");
  const MachineProfile profile = planner::read_machine_profile(folder / "cpu.yaml");
  EXPECT_EQ(profile.name, "cpu");
  EXPECT_TRUE(profile.send_recv_inside.empty());
  EXPECT_NE(profile.products.front().source.find("weft bench calibrate, 20"), std::string::npos);
  const CommandResult planned = plan(folder, 1, "6x1");
  ASSERT_EQ(planned.status, 0) << planned.err;
  EXPECT_GT(json::parse(planned.out)["predicted"]["tpot_ms"].get<double>(), 0);
  const CommandResult refused = plan(folder, 2, "3x1,3x1");
  EXPECT_EQ(refused.status, 2);
  EXPECT_NE(refused.err.find("calibrate it under mpirun with two ranks or more"), std::string::npos)
      << refused.err;
}

TEST(Calibrate, TwoRanksHaveCurvesOfBothAndOfTheirLinks) {
  const test::TemporaryFolder folder;
  const CommandResult made = calibrate(2, folder / "cpu.yaml");
  ASSERT_EQ(made.status, 0) << made.err;
  const MachineProfile profile = planner::read_machine_profile(folder / "cpu.yaml");
  ASSERT_EQ(profile.products.size(), 4u) << "from memory and from a cache, of one rank and of two";
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(profile.products[i].ranks, 1 + i / 2);
    EXPECT_EQ(profile.products[i].cached, i % 2 == 1);
  }
  ASSERT_EQ(profile.overheads.size(), 2u);
  EXPECT_EQ(profile.all_reduce.at(0).ranks, 2u);
  EXPECT_EQ(profile.send_recv_inside.size(), 1u);
  EXPECT_TRUE(profile.send_recv_across.empty()) << "there is one host";
  for (const char* layout : {"6x2", "3x1,3x1"}) {
    const CommandResult planned = plan(folder, 2, layout);
    EXPECT_EQ(planned.status, 0) << planned.err;
  }
}

TEST(Calibrate, BadInputIsRefused) {
  const test::TemporaryFolder folder;
  const auto refused = [](std::vector<std::string> words, const std::string& part) {
    const CommandResult result = run_weft(1, words);
    EXPECT_EQ(result.status, 2) << result.err;
    EXPECT_EQ(result.out, "");
    EXPECT_NE(result.err.find(part), std::string::npos) << result.err;
  };
  refused({"bench"}, "calibrate");
  refused({"bench", "calibrat"}, "calibrate");
  refused({"bench", "calibrate"}, "--output");
  refused({"bench", "calibrate", "--quik", "-o", folder / "x.yaml"}, "--quick");
  refused({"bench", "calibrate", "-o", folder / "none/x.yaml"}, "none");
  refused({"bench", "calibrate", "--threads", "0", "-o", folder / "x.yaml"}, "--threads");
}

}  // namespace
}  // namespace weft
