// What is said of drivers and GPUs that this machine need not have.
#include "kernels/gpu_needs.h"

#include <gtest/gtest.h>

#include <vector>

namespace weft::kernels {
namespace {

TEST(GpuNeeds, ADriverThatIsMissingOrOldIsNamedWithWhatIsNeeded) {
  EXPECT_EQ(driver_problem(0, 13000), "the GPU driver is missing: weft needs one for CUDA 13.0");
  EXPECT_EQ(driver_problem(12040, 13000),
            "the GPU driver is too old: it runs CUDA 12.4 at most, and weft needs 13.0; update it, "
            "or use --backend cpu");
}

TEST(GpuNeeds, CodeRunsWhereItsCapabilityAllows) {
  const std::vector<std::string> hopper = {"9.0a"}, two = {"8.0", "9.0a"};
  EXPECT_TRUE(runs_on(hopper, 9, 0));
  EXPECT_FALSE(runs_on(hopper, 10, 0)) << "code for 9.0 alone";
  EXPECT_FALSE(runs_on(hopper, 8, 0));
  EXPECT_TRUE(runs_on(two, 8, 0));
  EXPECT_TRUE(runs_on(two, 8, 6));
  EXPECT_FALSE(runs_on(std::vector<std::string>{"8.6"}, 8, 0));
  EXPECT_TRUE(runs_on(std::vector<std::string>{"12.0"}, 12, 1));
  EXPECT_FALSE(runs_on(std::vector<std::string>{"1.0"}, 10, 0)) << "1. is not 10.";
  EXPECT_FALSE(runs_on({}, 9, 0));
}

}  // namespace
}  // namespace weft::kernels
