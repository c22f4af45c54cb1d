// The question for GPUs has an answer on every machine.
#include "kernels/gpu_devices.h"

#include <gtest/gtest.h>

namespace weft::kernels {
namespace {

TEST(GpuDevices, EitherGpusOrTheReasonForNone) {
  const GpuQuery query = query_gpus();
  EXPECT_EQ(query.gpus.empty(), !query.why_none.empty()) << query.why_none;
  for (const GpuInfo& gpu : query.gpus) {
    EXPECT_FALSE(gpu.name.empty());
    EXPECT_GT(gpu.compute_major, 0);
    EXPECT_GT(gpu.total_bytes, size_t{1} << 30);
    EXPECT_LE(gpu.free_bytes, gpu.total_bytes);
    EXPECT_EQ(gpu.pci_bus_id.size(), 12u) << gpu.pci_bus_id;
  }
}

}  // namespace
}  // namespace weft::kernels
