// What measuring links asks of a host: names of ways between GPUs, and NVLink's counters (by a
// library of the test's own with NVML's functions).
#include <gtest/gtest.h>

#include "parallel/gpu_distance.h"
#include "parallel/nvlink_counters.h"
#include "tests/parallel/topology_files.h"

namespace weft::parallel {
namespace {

TEST(WayBetween, NamesTheWayAsNvidiaSmiDoes) {
  Topology dgx = made("dgx-h100");
  EXPECT_EQ(way_between(dgx, 0, 7), "NVLink") << "the file counts none";
  const size_t n = dgx.gpus.size();
  dgx.nvlinks_counted = true;
  dgx.nvlinks.assign(n, std::vector<unsigned>(n, 18));
  EXPECT_EQ(way_between(dgx, 0, 7), "NVLink x18");
  dgx.nvlinks.clear();
  EXPECT_EQ(way_between(dgx, 0, 7), "SYS");
}

// Two GPUs at a time below one bridge; the names follow the tree alone.
TEST(WayBetween, FollowsThePciTree) {
  Topology t = made("two-per-bridge");
  t.nvlinks.clear();
  size_t n_near = 0;
  for (size_t a = 0; a < t.gpus.size(); ++a)
    for (size_t b = 0; b < t.gpus.size(); ++b) {
      if (a == b) continue;
      const std::string way = way_between(t, a, b);
      EXPECT_EQ(way, way_between(t, b, a));
      switch (pci_distance(t, t.gpus[a], t.gpus[b])) {
        case PciDistance::same_switch:
          EXPECT_TRUE(way == "PIX" || way == "PXB") << way;
          ++n_near;
          break;
        case PciDistance::same_root:
          EXPECT_EQ(way, "PHB");
          break;
        case PciDistance::same_node:
          EXPECT_EQ(way, "NODE");
          break;
        default:
          EXPECT_EQ(way, "SYS");
      }
    }
  EXPECT_GT(n_near, 0u);
  // More bridges than a switch's two ports.
  t.gpus[0].switches = {"0000:01:00.0"};
  t.gpus[1].switches = {"0000:01:00.0", "0000:02:00.0", "0000:03:00.0", "0000:04:00.0"};
  t.gpus[1].root = t.gpus[0].root;
  EXPECT_EQ(way_between(t, 0, 1), "PXB");
  t.gpus[1].switches.resize(2);
  EXPECT_EQ(way_between(t, 0, 1), "PIX");
}

TEST(NvLinkCounters, CountTheWireInBytes) {
  const NvLinkCounters counters("0000:18:00.0", WEFT_FAKE_NVML);
  ASSERT_EQ(counters.why_none(), "");
  const auto before = counters.read(), after = counters.read();
  ASSERT_TRUE(before && after);
  EXPECT_EQ(after->sent - before->sent, 2 * 3 * 1024u) << "two counters a reading, 3 KiB each";
  EXPECT_EQ(after->received - after->sent, 3 * 1024u);
}

TEST(NvLinkCounters, TakeThePayloadWhereNothingElseIsCounted) {
  const NvLinkCounters counters("0000:B4:00.0", WEFT_FAKE_NVML);
  ASSERT_TRUE(counters.read());
  EXPECT_EQ(counters.read()->sent, 1138u * 1024);
  EXPECT_EQ(counters.read()->received, 1139u * 1024);
}

TEST(NvLinkCounters, SayWhyThereAreNone) {
  EXPECT_NE(NvLinkCounters("0000:FF:00.0", WEFT_FAKE_NVML).why_none().find("counts no NVLink"),
            std::string::npos);
  const NvLinkCounters unknown("0000:01:00.0", WEFT_FAKE_NVML);
  EXPECT_NE(unknown.why_none().find("does not know the GPU 0000:01:00.0"), std::string::npos);
  EXPECT_FALSE(unknown.read());
  EXPECT_NE(NvLinkCounters("0000:18:00.0", "libno-such.so").why_none().find("libno-such.so"),
            std::string::npos);
}

}  // namespace
}  // namespace weft::parallel
