// Rank 0's answer to a signal that asks the job to end: what waits is given up at once, what runs
// may finish within most of the grace, and is then cut at its next token.
#pragma once

#include <cstdint>

#include "parallel/guardian_page.h"
#include "runtime/base/log.h"

namespace weft::runtime {

class Drain {
 public:
  Drain(const parallel::StepWatch& watch, double grace_s)
      : watch_(watch), running_ns_(static_cast<int64_t>(grace_s * kShareForRunning * 1e9)) {}

  // Notes when it was asked for, and says so.
  bool asked() {
    if (asked_ns_ != 0 || watch_.n_drains() == 0) return asked_ns_ != 0;
    asked_ns_ = parallel::monotonic_ns();
    spdlog::warn(
        "asked to end: what runs may take {} s more, what waits is given up; a second "
        "signal ends all at once",
        running_ns_ / 1'000'000'000);
    return true;
  }
  bool cuts() const {
    return asked_ns_ != 0 && parallel::monotonic_ns() - asked_ns_ >= running_ns_;
  }

 private:
  static constexpr double kShareForRunning = 0.75;  // the rest is for printing and closing

  const parallel::StepWatch& watch_;
  int64_t running_ns_;
  int64_t asked_ns_ = 0;
};

}  // namespace weft::runtime
