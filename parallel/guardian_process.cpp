// A tick ten times a second, or as soon as anything comes. The first faults are gathered for a
// moment, since one failure makes others; the one that explains most is said, and all end with it.
#include "parallel/guardian_process.h"

#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "parallel/bounded_write.h"
#include "parallel/core_wait.h"
#include "parallel/guardian_orders.h"
#include "parallel/guardian_peers.h"
#include "parallel/rank_watch.h"
#include "parallel/setup_steps.h"
#include "parallel/slurm_step.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace weft::parallel {
namespace {

constexpr int kTickMs = 100;
constexpr int64_t kMs = 1'000'000;
// Between two ticks, beyond the wait for a core: then this process was stopped, or its host was.
constexpr int64_t kSuspendedNs = 1000 * kMs;
constexpr int64_t kGatherNs = 100 * kMs;         // faults that follow from each other
constexpr int64_t kGatherStallsNs = 1000 * kMs;  // steps that wait for each other
constexpr int64_t kVerdictNs = 1500 * kMs;       // until rank 0's guardian has answered
constexpr int64_t kAfterGraceNs = 5000 * kMs;    // beyond a drain's grace
constexpr int kGreetMs = 1000;                   // a step of the handshake
constexpr int kSayMs = 500;                      // where nobody reads stderr

// What a rank may be called before MPI has started; empty where no launcher numbered it.
std::string name_by_launcher() {
  for (const char* variable : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK", "SLURM_PROCID"})
    if (const char* rank = std::getenv(variable)) {
      char host[256] = {};
      gethostname(host, sizeof(host) - 1);
      return fmt::format("rank {} (host {})", rank, host);
    }
  return {};
}

class Supervisor {
 public:
  Supervisor(pid_t rank, pid_t launcher, int control, GuardianPage& page)
      : page_(page), watch_(rank, launcher, page), control_(control) {}
  int run();

 private:
  void wait();
  void obey();
  GuardianAnswer answer(const GuardianOrders& orders);
  void rename(const std::string& name);
  void follow(const GuardianOrders& orders);
  void tick();
  void share_pulse();
  void look_at_rank();
  void look_at_drain();
  void blame_rank(const Fault& fault);
  void hear(const Cause& cause);
  void decide();
  void decide_following();
  bool speaks_of_lead() const;
  void say_and_end(const Cause& cause);
  std::string states() const;
  void end(int status) { status_ = status; }

  GuardianPage& page_;
  RankWatch watch_;
  int control_;
  std::string name_;  // empty until the ranks know each other
  uint32_t rank_ = 0;
  bool speaks_ = true;
  std::unique_ptr<Followers> followers_;  // rank 0's guardian, where there are others
  std::unique_ptr<Lead> lead_;            // another's
  std::optional<Cause> cause_;            // the best so far
  int64_t cause_ns_ = 0;                  // when the first came
  bool reported_ = false;
  bool about_lead_ = false;  // the cause is the loss of rank 0's guardian
  int64_t now_ns_ = monotonic_ns();
  CoreWait core_wait_;
  int64_t stopped_ns_ = 0;  // since when this rank is stopped and others are not
  int64_t drained_ns_ = 0;  // when the drain was asked for
  std::optional<int> status_;
};

int Supervisor::run() {
  while (!status_) {
    wait();
    tick();
  }
  watch_.kill_rank();
  if (followers_) followers_->close(watch_.left_with() ? 0 : 300);
  return *status_;
}

void Supervisor::wait() {
  std::vector<pollfd> polls;
  if (control_ >= 0) polls.push_back({control_, POLLIN, 0});
  if (followers_) followers_->add_polls(polls);
  if (lead_) lead_->add_polls(polls);
  // The rank's end of the socket closes a moment before it can be waited for.
  const int limit_ms = control_ < 0 ? 2 : kTickMs;
  poll(polls.data(), polls.size(), limit_ms);
}

void Supervisor::tick() {
  const int64_t before = now_ns_;
  now_ns_ = monotonic_ns();
  // On a crowded host the others' words wait in the sockets meanwhile, so that they are not late.
  if (now_ns_ - before - core_wait_.since_last() > kSuspendedNs) {
    watch_.rearm(now_ns_);
    if (followers_) followers_->rearm(now_ns_);
    if (lead_) lead_->rearm(now_ns_);
    if (stopped_ns_ != 0) stopped_ns_ = now_ns_;
  }
  if (control_ >= 0) obey();
  look_at_rank();
  if (status_) return;
  share_pulse();
  look_at_drain();
  lead_ ? decide_following() : decide();
}

// Orders come once, a new name perhaps after them; the end of the socket is the end of the rank.
void Supervisor::obey() {
  GuardianOrders orders;
  const ssize_t n = recv(control_, &orders, sizeof(orders), MSG_DONTWAIT);
  if (n < 0) return;
  if (n != sizeof(orders)) {
    if (n == 0) control_ = -1;  // a shorter message only wakes us: the page has changed
    return;
  }
  const GuardianAnswer reply = answer(orders);
  (void)!send(control_, &reply, sizeof(reply), MSG_NOSIGNAL);
}

GuardianAnswer Supervisor::answer(const GuardianOrders& orders) {
  GuardianAnswer reply;
  if (orders.rename) {
    rename(orders.name.get());
    reply.good = true;
    return reply;
  }
  try {
    name_ = orders.name.get();
    rank_ = orders.rank;
    speaks_ = orders.speaks;
    if (orders.rank == 0 && orders.size > 1) {
      followers_ = std::make_unique<Followers>(orders.size, orders.secret.get(), name_);
      reply.port = followers_->port();
      std::string addresses = "127.0.0.1";
      if (!orders.one_host) addresses = fmt::format("{}", fmt::join(host_addresses(), " "));
      reply.text.set(addresses);
    }
    if (orders.rank > 0) follow(orders);
    reply.good = true;
  } catch (const std::exception& error) {
    reply.text.set(error.what());
  }
  return reply;
}

void Supervisor::rename(const std::string& name) {
  name_ = name;
  if (followers_) followers_->rename(name);
  if (lead_) lead_->rename(name);
}

// Some of a host's addresses are of no use to others, or mean another host there.
void Supervisor::follow(const GuardianOrders& orders) {
  std::string tried;
  for (const std::string& address : split(orders.lead_addresses.get(), ' ')) {
    try {
      std::string lead_name;
      GuardianLink link = greet_lead(address, orders.lead_port, orders.secret.get(), orders.rank,
                                     name_, kGreetMs, lead_name);
      lead_ = std::make_unique<Lead>(std::move(link), lead_name, orders.rank, monotonic_ns());
      return;
    } catch (const Error& error) {
      tried += fmt::format("{}{} ({})", tried.empty() ? "" : ", ", address, error.what());
    }
  }
  throw run_error(
      "its guardian can't reach rank 0's at port {} of {}: let TCP pass between the hosts, or give "
      "--no-guardian and lose the promise that a failure ends the job",
      orders.lead_port, tried.empty() ? "a host without addresses" : tried);
}

void Supervisor::look_at_rank() {
  const std::optional<Fault> fault = watch_.look(now_ns_);
  if (watch_.left_with()) {
    if (followers_) followers_->send_leaving();
    if (lead_) lead_->send_leaving();
    return end(*watch_.left_with());
  }
  if (!fault) return;
  // Before ranks know each other the launcher is the only way to them.
  if (name_.empty() && fault->kind == FaultKind::died) end_slurm_step();
  // One that ends by itself has said why.
  if (name_.empty() && watch_.exited()) return end(fault->status);
  blame_rank(*fault);
}

void Supervisor::share_pulse() {
  Pulse pulse;
  pulse.rank_stopped = watch_.stopped();
  pulse.n_drains = page_.n_drains();
  pulse.activity = page_.activity.load();
  bool all_stopped = pulse.rank_stopped;
  std::vector<Cause> causes;
  if (followers_) {
    followers_->tick(now_ns_, pulse, causes);
    page_.peer_drains.store(followers_->n_drains());
    all_stopped = pulse.rank_stopped && followers_->all_stopped();
  }
  if (lead_) {
    const auto lost = lead_->tick(now_ns_, pulse);
    about_lead_ = lost && !cause_;  // else what we have to say goes first
    if (about_lead_) causes.push_back(*lost);
    all_stopped = lead_->all_stopped();
  }
  for (const Cause& cause : causes) hear(cause);
  if (all_stopped) watch_.rearm(now_ns_);
  if (lead_) return;  // rank 0's guardian judges its followers' stops
  if (!pulse.rank_stopped || all_stopped) stopped_ns_ = 0;
  if (pulse.rank_stopped && !all_stopped && stopped_ns_ == 0) stopped_ns_ = now_ns_;
  if (stopped_ns_ != 0 && now_ns_ - stopped_ns_ > kLostNs)
    blame_rank({FaultKind::stopped, 1, "stopped (SIGSTOP) while others run"});
}

// Rank 0 acts on a drain; its guardian, or one that is alone so far, sees to its end.
void Supervisor::look_at_drain() {
  const uint32_t n = page_.n_drains();
  if (n == 0 || lead_) return;
  const int signal_number = std::max(page_.drain_signal(), 1);
  if (drained_ns_ == 0) drained_ns_ = now_ns_;
  if (n > 1)
    return blame_rank({FaultKind::asked, 128 + signal_number,
                       fmt::format("ended by a second signal ({})", strsignal(signal_number))});
  const int64_t grace_ns = page_.drain_grace_ns.load();
  if (grace_ns > 0 && now_ns_ - drained_ns_ > grace_ns + kAfterGraceNs)
    blame_rank({FaultKind::asked, 128 + signal_number,
                fmt::format("not done {} s after it was asked to end ({})",
                            (now_ns_ - drained_ns_) / (1000 * kMs), strsignal(signal_number))});
}

void Supervisor::blame_rank(const Fault& fault) {
  const std::string name = name_.empty() ? name_by_launcher() : name_;
  hear({fault.kind, fault.status,
        name.empty() ? fault.text : fmt::format("{}: {}", name, fault.text)});
}

void Supervisor::hear(const Cause& cause) {
  if (!cause_) cause_ns_ = now_ns_;
  if (!cause_ || cause.kind > cause_->kind) cause_ = cause;
}

void Supervisor::decide() {
  if (!cause_) return;
  const bool late = cause_->kind <= FaultKind::busy && cause_->kind != FaultKind::silent;
  if (followers_ && now_ns_ - cause_ns_ < (late ? kGatherStallsNs : kGatherNs)) return;
  say_and_end(*cause_);
  if (followers_) followers_->send_verdict(cause_->status);
}

// A cause that is ours goes to rank 0's guardian; where that is lost, we are the ones to say it.
void Supervisor::decide_following() {
  if (lead_->verdict()) return end(*lead_->verdict());
  if (!cause_) return;
  if (lead_->lost()) {
    if (about_lead_ && !speaks_of_lead()) return end(cause_->status);
    return say_and_end(*cause_);
  }
  if (!reported_) lead_->report(*cause_);
  reported_ = true;
  if (now_ns_ - cause_ns_ > kVerdictNs + kGatherStallsNs) say_and_end(*cause_);
}

// An end of rank 0's guardian reaches all others at once, and the next rank says it; where its
// messages have ceased others may be out of reach too, and one a host says so.
bool Supervisor::speaks_of_lead() const {
  return cause_->kind == FaultKind::guardian_lost ? rank_ == 1 : speaks_;
}

void Supervisor::say_and_end(const Cause& cause) {
  const std::string stuck = cause.kind <= FaultKind::busy ? states() : std::string();
  const std::string line = fmt::format("weft: {}\n{}", cause.line, stuck);
  write_within(STDERR_FILENO, line, kSayMs);  // there is nobody else to tell
  end(cause.status);
}

// Where set-up is stuck: what each rank was doing, as far as this guardian has heard.
std::string Supervisor::states() const {
  constexpr size_t kMostLines = 64;
  std::vector<std::string> lines;
  if (const uint8_t mine = page_.activity.load(); mine != 0)
    lines.push_back(fmt::format("{}: {}", name_, activity_text(mine)));
  if (followers_)
    for (std::string& line : followers_->activities()) lines.push_back(std::move(line));
  std::string text;
  for (size_t i = 0; i < std::min(lines.size(), kMostLines); ++i)
    text += fmt::format("  {}\n", lines[i]);
  if (lines.size() > kMostLines) text += fmt::format("  and {} more\n", lines.size() - kMostLines);
  return text;
}

// One connection a rank on rank 0's guardian.
void raise_file_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// A guardian needs next to nothing, but on a crowded host it must not be the one that waits: two
// seconds without a heartbeat are a loss. Where that is not allowed it stays as it is.
void raise_priority() {
  constexpr int kNice = -10;
  (void)setpriority(PRIO_PROCESS, 0, kNice);
}

}  // namespace

int run_guardian(pid_t rank, pid_t launcher, int control, GuardianPage& page) {
  signal(SIGPIPE, SIG_IGN);
  count_drain_signals(page.guardian_drains);
  raise_file_limit();
  raise_priority();
  return Supervisor(rank, launcher, control, page).run();
}

}  // namespace weft::parallel
