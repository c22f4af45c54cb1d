// waitpid, getppid, the shared page and /proc.
#include "parallel/rank_watch.h"

#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <sstream>

#include "parallel/setup_steps.h"
#include "runtime/base/error.h"

namespace weft::parallel {
namespace {

constexpr int64_t kProcEveryNs = 400'000'000;
constexpr int64_t kLongestLeaveNs = 30'000'000'000;
// Of a core. A rank that waits takes less (see Patience), one that computes more, even where many
// share a core.
constexpr double kBusy = 0.07;
constexpr const char* kBusErrorHint =
    ": a file that it maps was cut short, or cannot be read; was the checkpoint changed?";

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

// Open MPI's memory between ranks of a host has names, under which it outlives ranks that are
// killed and takes the host's memory; the ranks that share it all end now.
void remove_shared_memory(pid_t rank) {
  const std::string folder = "/dev/shm/";
  std::ifstream maps(fmt::format("/proc/{}/maps", rank));
  for (std::string line; std::getline(maps, line);) {
    const size_t at = line.find(folder);
    if (at == std::string::npos) continue;
    const std::string name = line.substr(at + folder.size());
    if (name.starts_with("vader_segment.") || name.starts_with("sm_segment."))
      unlink((folder + name).c_str());
  }
}

}  // namespace

RankWatch::RankWatch(pid_t rank, pid_t launcher, GuardianPage& page)
    : rank_(rank), launcher_(launcher), page_(page) {}

bool RankWatch::reap() {
  if (reaped_) return true;
  reaped_ = waitpid(rank_, &wait_status_, WNOHANG) == rank_;
  return reaped_;
}

// The name, in parentheses, may hold anything; after it come the state, ten other fields, and the
// ticks in user and in kernel mode.
void RankWatch::read_proc(int64_t now_ns) {
  const std::string stat = read_proc_file(rank_, "stat");
  const size_t name_end = stat.rfind(')');
  if (name_end == std::string::npos) return;
  std::istringstream fields(stat.substr(name_end + 1));
  char state = '?';
  std::string skipped;
  double user = 0, kernel = 0;
  fields >> state;
  for (int i = 0; i < 10; ++i) fields >> skipped;
  fields >> user >> kernel;
  stopped_ = state == 'T';
  const double cpu_s = (user + kernel) / static_cast<double>(sysconf(_SC_CLK_TCK));
  if (proc_read_ns_ != 0) busy_ = (busy_ + (cpu_s - cpu_s_) / seconds(now_ns - proc_read_ns_)) / 2;
  cpu_s_ = cpu_s;
  proc_read_ns_ = now_ns;
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
                 fmt::format("killed by signal {} ({}){}", signal_number, strsignal(signal_number),
                             signal_number == SIGBUS ? kBusErrorHint : "")};
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
  if (const uint8_t activity = page_.activity.load(); activity != 0)
    return Fault{
        waits_for_others(activity) ? FaultKind::stalled : FaultKind::busy, 1,
        fmt::format("not done within {:.0f} s: {}", seconds(limit), activity_text(activity))};
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
  remove_shared_memory(rank_);
  kill(rank_, SIGKILL);
  for (int i = 0; i < 200 && !reap(); ++i) {
    const timespec pause{0, 10'000'000};
    nanosleep(&pause, nullptr);
  }
}

}  // namespace weft::parallel
