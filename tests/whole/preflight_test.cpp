// `weft check --preflight` under mpirun, as a user meets it.
#include <gtest/gtest.h>

#include <filesystem>

#include "kernels/gpu_devices.h"
#include "tests/support/command.h"

namespace weft::test {
namespace {

const std::string kDemo = WEFT_SOURCE_DIR "/configs/models/demo";

class Preflight : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(run_weft(1, {"plan", "--model", kDemo, "--layout", "3x1,3x1", "-o", plan_}).status,
              0);
  }
  CommandResult check(int n_ranks, const std::vector<std::string>& more) const {
    std::vector<std::string> all = {"check", "--plan", plan_, "--model", kDemo};
    all.insert(all.end(), more.begin(), more.end());
    return run_weft(n_ranks, all, 60);
  }

  TemporaryFolder folder_;
  std::string plan_ = folder_ / "plan.yaml";
};

TEST_F(Preflight, ProvesTheJobWithTheFlagsOfARun) {
  for (const std::vector<std::string>& more :
       {std::vector<std::string>{"--preflight"},
        {"--preflight", "--share-gpus", "--gpu-transport", "host"},
        {"--preflight", "--backend", "cpu"}}) {
    const CommandResult result = check(2, more);
    EXPECT_EQ(result.status, 0) << result.err;
    for (const char* text :
         {"rank  host ", "edge rank 0 -> rank 1 (within a host)", "this job can run"})
      EXPECT_NE(result.out.find(text), std::string::npos) << text << " is not in: " << result.out;
  }
}

TEST_F(Preflight, RefusesAnotherNumberOfRanks) {
  const CommandResult result = check(3, {"--preflight"});
  EXPECT_EQ(result.status, 2) << result.err;
  EXPECT_NE(result.err.find("is for 2 ranks and the job has 3: start it with -n 2"),
            std::string::npos)
      << result.err;
  EXPECT_EQ(result.out, "");
}

TEST_F(Preflight, RefusesGpusThatAreNotThere) {
  if (!kernels::list_gpus().gpus.empty()) GTEST_SKIP() << "there is a GPU";
  const CommandResult result = check(2, {"--preflight", "--backend", "cuda"});
  EXPECT_EQ(result.status, 2) << result.err;
  EXPECT_NE(result.err.find("--backend cuda: "), std::string::npos) << result.err;
}

TEST_F(Preflight, ItsFlagsMeanNothingWithoutIt) {
  for (const char* flag : {"--share-gpus", "--no-bind", "--no-guardian"}) {
    const CommandResult result = check(1, {flag});
    EXPECT_EQ(result.status, 2) << flag;
    EXPECT_NE(result.err.find("--preflight"), std::string::npos) << result.err;
  }
}

}  // namespace
}  // namespace weft::test
