#include "runtime/prefault.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "runtime/base/pages.h"

namespace weft::runtime {
namespace {

constexpr size_t kMib = size_t{1} << 20;

size_t resident_bytes(const Pages& pages) {
  std::vector<unsigned char> resident((pages.bytes() + 4095) / 4096);
  if (mincore(pages.data(), pages.bytes(), resident.data()) != 0) return 0;
  return 4096 * static_cast<size_t>(
                    std::count_if(resident.begin(), resident.end(), [](int r) { return r & 1; }));
}

bool kernel_can() {
  const Pages page(4096);
  return madvise(page.data(), 4096, 23) == 0;
}

// Waits for the thread; false after ten seconds.
bool becomes_resident(const Pages& pages, size_t bytes) {
  for (int i = 0; i < 1000; ++i) {
    if (resident_bytes(pages) >= bytes) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return false;
}

TEST(Prefault, StaysALittleAheadAndReachesTheEnd) {
  if (!kernel_can()) GTEST_SKIP() << "this kernel has no MADV_POPULATE_WRITE";
  const Pages pages(201 * kMib + 12);
  const std::span<std::byte> all(pages.data(), pages.bytes());
  Prefault prefault({all.first(kMib + 5), all.subspan(kMib + 5)});
  EXPECT_TRUE(becomes_resident(pages, 14 * kMib));
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_LT(resident_bytes(pages), 40 * kMib);
  prefault.reached(0.5);
  EXPECT_TRUE(becomes_resident(pages, 110 * kMib));
  prefault.reached(1);
  EXPECT_TRUE(becomes_resident(pages, pages.bytes()));
}

TEST(Prefault, LeavesWhatIsWritten) {
  const Pages pages(33 * kMib);
  const std::span<std::byte> all(pages.data(), pages.bytes());
  {
    Prefault prefault({all});
    std::fill(all.begin(), all.end(), std::byte{0x5a});
    prefault.reached(1);
  }
  EXPECT_TRUE(
      std::all_of(all.begin(), all.end(), [](std::byte b) { return b == std::byte{0x5a}; }));
}

// A load that fails half way leaves at once.
TEST(Prefault, EndsWhileItWaits) {
  const Pages pages(256 * kMib);
  { Prefault prefault({{pages.data(), pages.bytes()}}); }
  EXPECT_LT(resident_bytes(pages), 256 * kMib);
  { Prefault none({}); }
}

}  // namespace
}  // namespace weft::runtime
