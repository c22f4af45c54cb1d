// Ranks on hosts that are thought up: which GPU each takes, and what is said where it can't.
#include "launch/gpu_pick.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/error_text.h"

namespace weft::launch {
namespace {

const std::vector<std::string> kHopper = {"9.0a"};

kernels::GpuInfo gpu(const std::string& bus, int major, int minor, const std::string& name) {
  kernels::GpuInfo info;
  info.name = name;
  info.compute_major = major;
  info.compute_minor = minor;
  info.pci_bus_id = bus;
  return info;
}

kernels::GpuQuery two_hoppers() {
  return {{gpu("0000:3B:00.0", 9, 0, "NVIDIA H100"), gpu("0000:9D:00.0", 9, 0, "NVIDIA H100")}, ""};
}

TEST(GpuPick, APlaceNamesItsGpu) {
  EXPECT_EQ(pick_gpu(two_hoppers(), kHopper, {"0000:9d:00.0", 0, 2}, false), 1u);
}

TEST(GpuPick, WithoutAPlaceRanksGoRound) {
  EXPECT_EQ(pick_gpu(two_hoppers(), kHopper, {"", 1, 2}, false), 1u);
  EXPECT_EQ(pick_gpu(two_hoppers(), kHopper, {"", 2, 3}, true), 0u);
}

TEST(GpuPick, MoreRanksThanGpusWantLeaveToShare) {
  kernels::GpuQuery one = two_hoppers();
  one.gpus.pop_back();
  EXPECT_ERROR(pick_gpu(one, kHopper, {"", 0, 2}, false), "2 ranks for 1 GPU:", "start 1 rank on",
               "--share-gpus");
  EXPECT_EQ(pick_gpu(one, kHopper, {"", 1, 2}, true), 0u);
}

TEST(GpuPick, AnotherCapabilityIsNamedBesideWhatWasBuilt) {
  const kernels::GpuQuery ampere{{gpu("0000:3B:00.0", 8, 0, "NVIDIA A100")}, ""};
  EXPECT_ERROR(pick_gpu(ampere, kHopper, {"", 0, 1}, false),
               "GPU 0 (NVIDIA A100) has compute capability 8.0, and weft was built for 9.0a",
               "--backend cpu");
  const std::vector<std::string> built = {"9.0a", "10.0a"};
  EXPECT_ERROR(pick_gpu(ampere, built, {"", 0, 1}, false), "built for 9.0a, 10.0a");
  EXPECT_ERROR(pick_gpu(ampere, {}, {"", 0, 1}, false), "built for none");
}

TEST(GpuPick, NoGpuIsWhatTheDriverSays) {
  const kernels::GpuQuery none{{}, "the driver shows no GPU to this process"};
  EXPECT_ERROR(pick_gpu(none, kHopper, {"", 0, 1}, false), "the driver shows no GPU");
}

}  // namespace
}  // namespace weft::launch
