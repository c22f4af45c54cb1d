// The pool behind Stream: ranges are claimed from one 64-bit word, so a worker that wakes late
// finds either work or nothing, and the caller never waits for a thread that has not started.
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <exception>
#include <thread>
#include <utility>
#include <vector>

#include "kernels/device.h"

namespace weft::kernels {
namespace {

// Long enough to bridge the gaps between the operations of a step, short enough that an idle rank
// costs nothing that can be measured. In a virtual machine, waking a thread that sleeps takes
// longer than most operations of a small model.
constexpr auto kSpin = std::chrono::microseconds(200);

// Ranges per thread: late wakers and cores shared with other processes then cost a part of an
// operation, not half of it.
constexpr size_t kRangesPerThread = 4;

void pause_core() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

size_t usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return std::thread::hardware_concurrency();
  return static_cast<size_t>(CPU_COUNT(&set));
}

// True as soon as ready() is; false when the time for spinning is over.
template <class Ready>
bool spin_until(bool may_spin, Ready&& ready) {
  if (ready()) return true;
  if (!may_spin) return false;
  const auto end = std::chrono::steady_clock::now() + kSpin;
  do {
    for (int i = 0; i < 32; ++i) {
      if (ready()) return true;
      pause_core();
    }
  } while (std::chrono::steady_clock::now() < end);
  return false;
}

}  // namespace

struct ThreadPool::State {
  // High half: number of the job. Low half: its ranges not yet claimed. A claim subtracts one; the
  // fields below are stable from then until that range is counted in `finished`.
  std::atomic<uint64_t> work{0};
  RangeCall call = nullptr;
  void* context = nullptr;
  size_t n = 0;
  size_t range = 0;
  uint32_t n_ranges = 0;
  std::exception_ptr error;
  std::atomic_flag has_error;

  alignas(64) std::atomic<uint32_t> finished{0};   // ranges of this job
  alignas(64) std::atomic<uint32_t> published{0};  // jobs; what sleeping workers wait on
  std::atomic<uint32_t> sleepers{0};
  std::atomic<bool> stop{false};
  bool may_spin = false;
  std::vector<std::thread> workers;

  ~State() {
    stop.store(true, std::memory_order_release);
    publish();
    for (std::thread& worker : workers) worker.join();
  }

  // Sequentially consistent with sleep(): either the worker sees the new number or the caller sees
  // the sleeper.
  void publish() {
    published.fetch_add(1);
    if (sleepers.load() > 0) published.notify_all();
  }

  void sleep(uint32_t before) {
    sleepers.fetch_add(1);
    published.wait(before);
    sleepers.fetch_sub(1);
  }

  bool has_work() const { return static_cast<uint32_t>(work.load(std::memory_order_acquire)) > 0; }

  bool run_one() {
    uint64_t seen = work.load(std::memory_order_acquire);
    do {
      if (static_cast<uint32_t>(seen) == 0) return false;
    } while (!work.compare_exchange_weak(seen, seen - 1, std::memory_order_acq_rel,
                                         std::memory_order_acquire));
    const size_t begin = (n_ranges - static_cast<uint32_t>(seen)) * range;
    try {
      call(context, begin, std::min(n, begin + range));
    } catch (...) {
      if (!has_error.test_and_set()) error = std::current_exception();
    }
    // The last one wakes the caller; `all` is read before the count lets the next job change it.
    const uint32_t all = n_ranges;
    if (finished.fetch_add(1, std::memory_order_acq_rel) + 1 == all) finished.notify_one();
    return true;
  }

  void serve() {
    for (;;) {
      const uint32_t before = published.load(std::memory_order_acquire);
      while (run_one()) {
      }
      const auto ready = [&] { return has_work() || stop.load(std::memory_order_acquire); };
      if (!spin_until(may_spin, ready)) sleep(before);
      if (stop.load(std::memory_order_acquire)) return;
    }
  }
};

ThreadPool::ThreadPool(size_t n_threads) : state_(std::make_unique<State>()) {
  state_->may_spin = usable_cores() >= n_threads;
  state_->workers.reserve(n_threads);
  for (size_t i = 1; i < n_threads; ++i)
    state_->workers.emplace_back([state = state_.get()] { state->serve(); });
}

ThreadPool::~ThreadPool() = default;

size_t ThreadPool::n_threads() const { return state_->workers.size() + 1; }

void ThreadPool::split_ranges(size_t n, size_t grain, RangeCall call, void* context) {
  State& s = *state_;
  if (n == 0) return;
  grain = std::max<size_t>(grain, 1);
  if (s.workers.empty() || n <= grain) return call(context, 0, n);

  const size_t n_grains = (n + grain - 1) / grain;
  const size_t per_range =
      (n_grains + kRangesPerThread * n_threads() - 1) / (kRangesPerThread * n_threads());
  s.call = call;
  s.context = context;
  s.n = n;
  s.range = per_range * grain;
  s.n_ranges = static_cast<uint32_t>((n + s.range - 1) / s.range);
  s.error = nullptr;
  s.has_error.clear();
  s.finished.store(0, std::memory_order_relaxed);
  const uint64_t job = (s.work.load(std::memory_order_relaxed) >> 32) + 1;
  s.work.store(job << 32 | s.n_ranges, std::memory_order_release);
  s.publish();

  while (s.run_one()) {
  }
  const auto done = [&] { return s.finished.load(std::memory_order_acquire) == s.n_ranges; };
  if (!spin_until(s.may_spin, done)) {
    for (uint32_t seen = s.finished.load(); seen != s.n_ranges; seen = s.finished.load())
      s.finished.wait(seen);
  }
  if (s.error) std::rethrow_exception(std::exchange(s.error, nullptr));
}

}  // namespace weft::kernels
