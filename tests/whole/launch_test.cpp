// `weft launch` as a user meets it: what it prints runs, and what can't be is refused.
#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/command.h"

namespace weft::test {
namespace {

const std::string kDemo = WEFT_SOURCE_DIR "/configs/models/demo";

class Launch : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(run_weft(1, {"plan", "--model", kDemo, "--layout", "3x1,3x1", "-o", plan_}).status,
              0);
  }
  std::string hostfile(const std::string& text) const {
    std::ofstream(folder_ / "hosts") << text;
    return folder_ / "hosts";
  }
  CommandResult launch(const std::vector<std::string>& flags) const {
    std::vector<std::string> all = {"launch", "--plan", plan_};
    all.insert(all.end(), flags.begin(), flags.end());
    for (const char* word :
         {"--", "run", "--model", kDemo.c_str(), "--prompt", "import os", "--max-tokens", "4"})
      all.emplace_back(word);
    return run_weft(1, all, 30);
  }

  TemporaryFolder folder_;
  std::string plan_ = folder_ / "plan.yaml";
};

TEST_F(Launch, WhatIsPrintedRuns) {
  const CommandResult printed = launch({"--launcher", "mpirun"});
  ASSERT_EQ(printed.status, 0) << printed.err;
  const CommandResult ran = run_command({"bash", "-c", printed.out}, 60);
  EXPECT_EQ(ran.status, 0) << ran.err;
  EXPECT_NE(ran.out, "");
}

TEST_F(Launch, RefusesWhatCantBe) {
  struct Case {
    std::vector<std::string> flags;
    std::vector<const char*> words;
  };
  const std::vector<Case> cases = {
      {{"--launcher", "srum"}, {"\"srum\" is none of mpirun, srun, sbatch", "did you mean"}},
      {{"--launcher", "mpirun", "--hostfile", hostfile("a slots=1\n")},
       {"has 1 slots on 1 hosts", "2 ranks"}},
      {{"--launcher", "mpirun", "--hostfile", folder_ / "none"}, {"cannot open"}},
      {{"--launcher", "srun", "--hostfile", hostfile("a slots=1\n")}, {"--hostfile is mpirun's"}},
      {{"--launcher", "mpirun", "--nic", "nosuch0"}, {"--nic nosuch0", "no such network"}},
      {{"--launcher", "mpirun", "--open-mpi", "6"}, {"--open-mpi", "4"}},
      {{"--launcher", "mpirun", "--nodes", "0"}, {"--nodes"}},
      {{"--launcher", "mpirun", "--hostfiel", "x"}, {"--hostfiel", "did you mean"}}};
  for (const Case& one : cases) {
    const CommandResult result = launch(one.flags);
    EXPECT_EQ(result.status, 2) << one.flags[1];
    EXPECT_EQ(result.out, "");
    EXPECT_EQ(result.err.find("warning"), std::string::npos) << result.err;
    for (const char* word : one.words)
      EXPECT_NE(result.err.find(word), std::string::npos)
          << "no \"" << word << "\" in: " << result.err;
  }
}

}  // namespace
}  // namespace weft::test
