// What a rank and its guardian say to each other without a system call: one page that both see.
// The rank notes when a step begins and ends, why it fails, and that it is about to end as it
// should; either notes the signals that ask for a drain.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

namespace weft::parallel {

constexpr size_t kMostCauseBytes = 3072;

// Nanoseconds of CLOCK_MONOTONIC, which rank and guardian share.
int64_t monotonic_ns();

// Signals of one process that ask for a drain. Launchers and `timeout` often send one twice, to the
// process and to its group: what follows within half a second is the same request.
struct DrainCount {
  std::atomic<uint32_t> n{0};
  std::atomic<int64_t> last_ns{0};
  std::atomic<int32_t> signal{0};  // the latest
  void add(int signal_number);     // callable from a signal handler
};

// In memory shared over fork(); lives as long as either process.
struct GuardianPage {
  // By the rank's step thread. `step` is 0 between steps, and written last when one begins.
  std::atomic<uint64_t> step{0};
  std::atomic<int64_t> step_begin_ns{0};
  std::atomic<int64_t> step_limit_ns{0};  // 0: none
  std::atomic<uint8_t> activity{0};       // of set-up (setup_steps.h); 0: other work
  // By the rank, once.
  std::atomic<bool> met{false};      // its guardian knows the others'
  std::atomic<bool> leaving{false};  // any exit from now on is in order, unless by a signal
  std::atomic<int64_t> drain_grace_ns{0};
  std::atomic<bool> failed{false};  // written after the three below
  int32_t failure_status = 1;
  uint32_t cause_bytes = 0;
  std::array<char, kMostCauseBytes> cause{};
  // The same signal reaches the rank, its guardian or both, and through the guardians other ranks.
  DrainCount rank_drains;
  DrainCount guardian_drains;
  std::atomic<uint32_t> peer_drains{0};

  // How often the job was asked to drain.
  uint32_t n_drains() const;
  int drain_signal() const;
  void set_failure(std::string_view what, int status);
  std::string failure_text() const;
};
static_assert(std::atomic<int64_t>::is_always_lock_free && std::atomic<bool>::is_always_lock_free);

// Signals that ask for a drain are counted in `count` from now on, in this process, also where it
// was started with them blocked.
void count_drain_signals(DrainCount& count);

// The rank's side of the page, for the loop that runs steps. Costs a look at the clock and a few
// stores a step; without a page it does nothing.
class StepWatch {
 public:
  StepWatch() = default;
  explicit StepWatch(GuardianPage* page) : page_(page) {}

  // Steps that begin from now on must end within this; 0: they may take any time.
  void set_limit(double limit_s) { limit_ns_ = static_cast<int64_t>(limit_s * 1e9); }
  void begin();
  void end();
  // What this rank is doing, for the others to see should anything get stuck.
  void note(uint8_t activity);

  uint32_t n_drains() const { return page_ ? page_->n_drains() : 0; }
  // The signal that asked for it, or 0.
  int drain_signal() const { return page_ ? page_->drain_signal() : 0; }

 private:
  GuardianPage* page_ = nullptr;
  int64_t limit_ns_ = 0;
  uint64_t n_steps_ = 0;
};

// A step from here to the end of the scope.
class WatchedStep {
 public:
  explicit WatchedStep(StepWatch& watch) : watch_(watch) { watch_.begin(); }
  ~WatchedStep() { watch_.end(); }
  WatchedStep(const WatchedStep&) = delete;
  WatchedStep& operator=(const WatchedStep&) = delete;

 private:
  StepWatch& watch_;
};

}  // namespace weft::parallel
