// waitpid, getppid, the shared page and /proc.
#include "parallel/rank_watch.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>

#include "runtime/base/error.h"

namespace weft::parallel {
namespace {

constexpr int64_t kProcEveryNs = 400'000'000;
constexpr int64_t kLongestLeaveNs = 30'000'000'000;
constexpr double kBusy = 0.5;

// Files of /proc are made when they are read: a page holds what is wanted of these.
std::string read_proc_file(pid_t pid, const char* name) {
  std::array<char, 4096> text{};
  FILE* file = fopen(fmt::format("/proc/{}/{}", pid, name).c_str(), "re");
  if (file == nullptr) return {};
  const size_t n = fread(text.data(), 1, text.size(), file);
  fclose(file);
  return {text.data(), n};
}

double seconds(int64_t ns) { return static_cast<double>(ns) * 1e-9; }

}  // namespace

RankWatch::RankWatch(pid_t rank, pid_t launcher, GuardianPage& page)
    : rank_(rank), launcher_(launcher), page_(page) {}

bool RankWatch::reap() {
  if (reaped_) return true;
  reaped_ = waitpid(rank_, &wait_status_, WNOHANG) == rank_;
  return reaped_;
}

// The state follows the name, which is in parentheses and may hold anything. A rank that waits for
// others sleeps between two looks; one that computes, or waits for a disk, hardly ever does.
void RankWatch::read_proc(int64_t now_ns) {
  proc_read_ns_ = now_ns;
  const std::string stat = read_proc_file(rank_, "stat");
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos || name_end + 2 >= stat.size()) return;
  const char state = stat[name_end + 2];
  stopped_ = state == 'T';
  busy_ = (busy_ + (state == 'R' || state == 'D' ? 1 : 0)) / 2;
  // A core file of many GiB takes minutes, during which the rank is not dead yet.
  dumps_core_ = read_proc_file(rank_, "status").find("CoreDumping:\t1") != std::string::npos;
}

std::optional<Fault> RankWatch::look(int64_t now_ns) {
  if (reap()) {
    exited_ = WIFEXITED(wait_status_);
    const int status = exited_ ? WEXITSTATUS(wait_status_) : 0;
    if (exited_ && page_.leaving.load()) {
      left_with_ = status;
      return std::nullopt;
    }
    if (page_.failed.load(std::memory_order_acquire))
      return Fault{FaultKind::error, page_.failure_status, page_.failure_text()};
    if (exited_)
      return Fault{FaultKind::died, status == 0 ? 1 : status,
                   fmt::format("ended with status {} before the job was done", status)};
    const int signal_number = WTERMSIG(wait_status_);
    return Fault{FaultKind::died, 128 + signal_number,
                 fmt::format("killed by signal {} ({})", signal_number, strsignal(signal_number))};
  }
  if (page_.failed.load(std::memory_order_acquire))
    return Fault{FaultKind::error, page_.failure_status, page_.failure_text()};
  if (launcher_ != 0 && getppid() != launcher_)
    return Fault{FaultKind::launcher_lost, 1,
                 fmt::format("the launcher's process {} on its host has ended", launcher_)};
  if (now_ns - proc_read_ns_ >= kProcEveryNs) read_proc(now_ns);
  if (dumps_core_) return Fault{FaultKind::died, 128 + SIGABRT, "crashed, and writes a core file"};
  if (stopped_) rearm(now_ns);
  if (auto late = late_step(now_ns)) return late;
  return late_end(now_ns);
}

std::optional<Fault> RankWatch::late_step(int64_t now_ns) {
  const uint64_t step = page_.step.load(std::memory_order_acquire);
  const int64_t limit = page_.step_limit_ns.load(std::memory_order_relaxed);
  const int64_t since = std::max(page_.step_begin_ns.load(std::memory_order_relaxed), rearmed_ns_);
  if (step == 0 || limit == 0 || now_ns - since <= limit) return std::nullopt;
  if (page_.step.load(std::memory_order_acquire) != step) return std::nullopt;
  if (!page_.met.load())
    return Fault{FaultKind::stalled, 1,
                 fmt::format("has not met all other ranks within {:.0f} s", seconds(limit))};
  const bool computes = busy_ > kBusy;
  return Fault{computes ? FaultKind::busy : FaultKind::stalled, 1,
               fmt::format("a step has not ended within its limit of {:.0f} s ({}); "
                           "--step-limit-s sets another",
                           seconds(limit), computes ? "it computes" : "it waits")};
}

std::optional<Fault> RankWatch::late_end(int64_t now_ns) {
  if (!page_.leaving.load()) return std::nullopt;
  if (left_ns_ == 0 || left_ns_ < rearmed_ns_) left_ns_ = now_ns;
  if (now_ns - left_ns_ <= kLongestLeaveNs) return std::nullopt;
  return Fault{
      FaultKind::stalled, 1,
      fmt::format("was done, but has not ended within {:.0f} s", seconds(kLongestLeaveNs))};
}

void RankWatch::kill_rank() {
  if (reaped_) return;
  kill(rank_, SIGKILL);
  for (int i = 0; i < 200 && !reap(); ++i) {
    const timespec pause{0, 10'000'000};
    nanosleep(&pause, nullptr);
  }
}

}  // namespace weft::parallel
