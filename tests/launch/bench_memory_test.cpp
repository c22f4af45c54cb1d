// The words of `weft bench step` about memory.
#include <gtest/gtest.h>

#include "launch/bench_cases.h"

namespace weft::launch {
namespace {

constexpr size_t kGib = size_t{1} << 30;

TEST(BenchMemory, StandsBesideThePlanByPart) {
  const MemoryUse use{76 * kGib, {62 * kGib, 8 * kGib, 3 * kGib, 2 * kGib}, kGib, 1};
  EXPECT_EQ(use.planned_bytes(), 76 * kGib);
  EXPECT_EQ(memory_text(use),
            "memory: 76.0 GiB in use at most, 76.0 GiB planned (weights 62.0 + KV 8.00 + "
            "activations 3.00 + buffers 2.00 + CUDA 1.00), ratio 1.000");
}

TEST(BenchMemory, RanksThatShareAGpuCountTogether) {
  const MemoryUse use{11 * kGib, {2 * kGib, kGib, kGib, kGib}, kGib, 2};
  EXPECT_EQ(use.planned_bytes(), 12 * kGib);
  EXPECT_NE(memory_text(use).find("12.0 GiB planned (2 ranks of weights 2.00"), std::string::npos)
      << memory_text(use);
  EXPECT_NEAR(use.ratio(), 0.917, 1e-3);
}

}  // namespace
}  // namespace weft::launch
