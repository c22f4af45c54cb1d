// The second number of the thread's schedstat.
#include "parallel/core_wait.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cinttypes>
#include <cstdio>

namespace weft::parallel {

CoreWait::CoreWait() : fd_(open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC)) {
  last_ns_ = total_ns();
}

CoreWait::~CoreWait() {
  if (fd_ >= 0) close(fd_);
}

int64_t CoreWait::since_last() {
  const int64_t before = last_ns_;
  last_ns_ = total_ns();
  return last_ns_ - before;
}

int64_t CoreWait::total_ns() const {
  std::array<char, 128> text{};
  int64_t waited = 0;
  if (fd_ < 0 || pread(fd_, text.data(), text.size() - 1, 0) <= 0) return last_ns_;
  return std::sscanf(text.data(), "%*u %" SCNd64, &waited) == 1 ? waited : last_ns_;
}

}  // namespace weft::parallel
