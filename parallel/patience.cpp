// Spinning, yielding, then sleeping.
#include "parallel/patience.h"

#include <sched.h>
#include <time.h>

#include <algorithm>

namespace weft::parallel {
namespace {

// Few, because ranks may share a core: the peer that is waited for then runs only when we yield.
constexpr int kTriesAtOnce = 16;
constexpr int64_t kYieldNs = 100'000;
constexpr int64_t kAloneNs = 2'000'000;
// A yield that takes longer has let another run.
constexpr int64_t kOwnYieldNs = 10'000;
constexpr int64_t kShortestSleepNs = 20'000;
constexpr int64_t kLongSleepNs = 500'000;
constexpr int64_t kLongestSleepNs = 2'000'000;

int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

}  // namespace

void Patience::pause() {
  if (tries_ < kTriesAtOnce) {
    ++tries_;
    return;
  }
  const int64_t now = now_ns();
  if (started_ns_ == 0) started_ns_ = now;
  const int64_t waited = now - started_ns_;
  if (waited < (shared_ ? kYieldNs : kAloneNs)) {
    sched_yield();
    shared_ = shared_ || now_ns() - now > kOwnYieldNs;
    return;
  }
  // In a virtual machine one sleep costs 25 µs of its core: 2000 a second would be 5 %.
  const int64_t busy_sleep = std::clamp(waited / 32, kShortestSleepNs, kLongSleepNs);
  const int64_t idle_sleep = std::min(waited / 256, kLongestSleepNs);
  const timespec sleep{0, std::max(busy_sleep, idle_sleep)};
  nanosleep(&sleep, nullptr);
}

}  // namespace weft::parallel
