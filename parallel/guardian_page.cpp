// Stores and loads of the shared page, and the signal handler that counts.
#include "parallel/guardian_page.h"

#include <signal.h>
#include <time.h>

#include <algorithm>
#include <cerrno>

#include "runtime/base/error.h"

namespace weft::parallel {
namespace {

constexpr int64_t kSameRequestNs = 500'000'000;

// A handler has no argument of its own; each process has one count.
std::atomic<DrainCount*> counted_here{nullptr};

void on_drain_signal(int signal_number) {
  const int error = errno;
  if (DrainCount* count = counted_here.load()) count->add(signal_number);
  errno = error;
}

}  // namespace

int64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * int64_t{1'000'000'000} + now.tv_nsec;
}

void DrainCount::add(int signal_number) {
  const int64_t now = monotonic_ns();
  if (n.load() > 0 && now - last_ns.load() < kSameRequestNs) return;
  signal.store(signal_number);
  last_ns.store(now);
  n.fetch_add(1);
}

uint32_t GuardianPage::n_drains() const {
  return std::max({rank_drains.n.load(std::memory_order_relaxed),
                   guardian_drains.n.load(std::memory_order_relaxed),
                   peer_drains.load(std::memory_order_relaxed)});
}

int GuardianPage::drain_signal() const {
  const int mine = rank_drains.signal.load();
  return mine != 0 ? mine : guardian_drains.signal.load();
}

void GuardianPage::set_failure(std::string_view what, int status) {
  what = what.substr(0, kMostCauseBytes);
  std::copy(what.begin(), what.end(), cause.begin());
  cause_bytes = static_cast<uint32_t>(what.size());
  failure_status = status;
  failed.store(true, std::memory_order_release);
}

std::string GuardianPage::failure_text() const { return {cause.data(), cause_bytes}; }

void count_drain_signals(DrainCount& count) {
  counted_here.store(&count);
  struct sigaction action {};
  action.sa_handler = on_drain_signal;
  action.sa_flags = SA_RESTART;
  sigemptyset(&action.sa_mask);
  sigset_t counted;
  sigemptyset(&counted);
  for (const int signal_number : {SIGTERM, SIGINT, SIGUSR1}) {
    sigaddset(&counted, signal_number);
    if (sigaction(signal_number, &action, nullptr) != 0) throw system_error("sigaction", errno);
  }
  // What a launcher, a shell or a service manager blocked is inherited over exec().
  if (const int error = pthread_sigmask(SIG_UNBLOCK, &counted, nullptr); error != 0)
    throw system_error("pthread_sigmask", error);
}

void StepWatch::begin() {
  if (page_ == nullptr) return;
  page_->step_begin_ns.store(monotonic_ns(), std::memory_order_relaxed);
  page_->step_limit_ns.store(limit_ns_, std::memory_order_relaxed);
  page_->step.store(++n_steps_, std::memory_order_release);
}

void StepWatch::note(uint8_t activity) {
  if (page_ != nullptr) page_->activity.store(activity, std::memory_order_relaxed);
}

void StepWatch::end() {
  if (page_ != nullptr) page_->step.store(0, std::memory_order_release);
}

}  // namespace weft::parallel
