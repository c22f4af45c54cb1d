// Walks the areas huge page by huge page, never further ahead than a few of them.
#include "runtime/prefault.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdint>

#ifndef MADV_POPULATE_WRITE  // Linux 5.14
#define MADV_POPULATE_WRITE 23
#endif

namespace weft::runtime {
namespace {

constexpr size_t kPageBytes = size_t{2} << 20;
constexpr size_t kAheadBytes =
    8 * kPageBytes;  // what is zeroed is still in the cache when it fills

// Leaves what is written there as it is. False where the kernel can't.
bool populate(uintptr_t begin, uintptr_t end) {
  constexpr uintptr_t kSmallPage = 4096;
  begin -= begin % kSmallPage;
  return madvise(reinterpret_cast<void*>(begin), end - begin, MADV_POPULATE_WRITE) == 0;
}

}  // namespace

Prefault::Prefault(std::vector<std::span<std::byte>> areas) : filled_(0) {
  for (const std::span<std::byte>& area : areas) total_ += area.size();
  thread_ = std::jthread(
      [this, areas = std::move(areas)](const std::stop_token& stop) { run(stop, areas); });
}

void Prefault::reached(double fraction) {
  filled_ = static_cast<size_t>(std::clamp(fraction, 0.0, 1.0) * static_cast<double>(total_));
  filled_.notify_one();
}

void Prefault::run(const std::stop_token& stop, const std::vector<std::span<std::byte>>& areas) {
  const std::stop_callback wake(stop, [this] { reached(1); });
  size_t passed = 0;  // bytes of the areas before this page
  for (const std::span<std::byte>& area : areas) {
    auto at = reinterpret_cast<uintptr_t>(area.data());
    const uintptr_t area_end = at + area.size();
    while (at < area_end) {
      for (size_t filled = filled_; passed > filled + kAheadBytes; filled = filled_)
        filled_.wait(filled);
      const uintptr_t end = std::min(area_end, (at / kPageBytes + 1) * kPageBytes);
      if (stop.stop_requested() || !populate(at, end)) return;
      passed += end - at;
      at = end;
    }
  }
}

}  // namespace weft::runtime
