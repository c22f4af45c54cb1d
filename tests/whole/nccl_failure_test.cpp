// NCCL's asynchronous errors end a job by the failure contract, with a library that stands for
// NCCL.
#include <gtest/gtest.h>

#include <sstream>
#include <string>
#include <vector>

#include "tests/support/command.h"

namespace weft {
namespace {

TEST(NcclFailure, IsSaidOnceWithTheRankAndItsReason) {
  const test::CommandResult result =
      test::run_command({"mpirun", "--oversubscribe", "--bind-to", "none", "-n", "3",
                         WEFT_NCCL_FAULT_PROGRAM, WEFT_FAKE_NCCL},
                        60);
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.status, 1) << result.err;
  std::istringstream lines(result.err);
  std::vector<std::string> said;
  for (std::string line; std::getline(lines, line);)
    if (line.starts_with("weft: ")) said.push_back(line);
  ASSERT_EQ(said.size(), 1u) << result.err;
  EXPECT_TRUE(said.front().starts_with("weft: rank 2 (host ")) << said.front();
  EXPECT_TRUE(said.front().ends_with("): NCCL failed: remote error: the cable is out"))
      << said.front();
}

}  // namespace
}  // namespace weft
