// The fork, and the rank's few words to its guardian.
#include "parallel/guardian.h"

#include <poll.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <new>
#include <utility>

#include "parallel/gather.h"
#include "parallel/guardian_orders.h"
#include "parallel/guardian_process.h"
#include "runtime/base/hmac.h"
#include "runtime/base/text.h"

namespace weft::parallel {
namespace {

constexpr int kAnswerMs = 30'000;  // many addresses, a second or two each
constexpr unsigned kEndSeconds = 10;
// From the fork to the end of join(): a rank that died before it was known can't be told of.
constexpr double kMeetLimitS = 120;

GuardianPage* make_page() {
  void* memory = mmap(nullptr, sizeof(GuardianPage), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) throw system_error("no page to share with the guardian", errno);
  return new (memory) GuardianPage;
}

[[noreturn]] void be_guardian(pid_t rank, int control, GuardianPage& page) {
  prctl(PR_SET_NAME, "weft-guardian");
  const pid_t launcher = started_by_launcher() ? getppid() : 0;
  int status = 1;
  try {
    status = run_guardian(rank, launcher, control, page);
  } catch (const std::exception& error) {
    kill(rank, SIGKILL);  // first: a write may block
    fmt::print(stderr, "weft: guardian of process {}: {}\n", rank, error.what());
  }
  std::_Exit(status);
}

void be_rank(pid_t guardian, GuardianPage& page) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != guardian) std::_Exit(1);  // it died before the line above
  count_drain_signals(page.rank_drains);
  StepWatch meeting(&page);
  meeting.set_limit(kMeetLimitS);
  meeting.begin();
}

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "unknown";
}

std::string rank_name(int rank, const std::string& device) {
  return fmt::format("rank {} (host {}, {})", rank, host_name(), device);
}

// The lowest rank of each host but rank 0: where rank 0's guardian is lost, one a host says so.
bool speaks(const MpiSession& session) {
  const std::vector<int>& node_of = session.node_of();
  for (int rank = 1; rank < session.rank(); ++rank)
    if (node_of[static_cast<size_t>(rank)] == session.node()) return false;
  return true;
}

GuardianAnswer ask(int control, const GuardianOrders& orders) {
  GuardianAnswer answer;
  if (send(control, &orders, sizeof(orders), MSG_NOSIGNAL) != sizeof(orders))
    throw system_error("cannot speak to the guardian", errno);
  pollfd ready{control, POLLIN, 0};
  int n_ready = 0;
  do {
    n_ready = poll(&ready, 1, kAnswerMs);
  } while (n_ready < 0 && errno == EINTR);
  if (n_ready <= 0 || recv(control, &answer, sizeof(answer), 0) != sizeof(answer))
    throw run_error("its guardian does not answer");
  if (!answer.good) throw Error(answer.text.get(), 1);
  return answer;
}

// All ranks were started with a guardian, or none was; a rank whose flags were refused meets the
// others at the first agreement.
void agree_on_guardians(const MpiSession& session, bool guarded) {
  agree(session, [] {});
  const std::vector<char> all = gather(session, static_cast<char>(guarded ? 1 : 0));
  agree(session, [&] {
    if (all.front() == (guarded ? 1 : 0)) return;
    throw input_error(
        "this rank was started {} a guardian and rank 0 {}: give --no-guardian to all "
        "ranks or to none",
        guarded ? "with" : "without", guarded ? "without" : "with");
  });
}

}  // namespace

Guardian Guardian::start() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends) != 0)
    throw system_error("no socket to the guardian", errno);
  GuardianPage* page = make_page();
  std::fflush(nullptr);  // or both would write what waits
  const pid_t guardian = getpid();
  const pid_t rank = fork();
  if (rank < 0) throw system_error("cannot fork the rank from its guardian", errno);
  close(rank > 0 ? ends[1] : ends[0]);
  if (rank > 0) be_guardian(rank, ends[0], *page);
  be_rank(guardian, *page);
  return {page, ends[1]};
}

Guardian::Guardian(Guardian&& other) noexcept
    : page_(std::exchange(other.page_, nullptr)),
      control_(std::exchange(other.control_, -1)),
      rank_(other.rank_),
      device_(std::move(other.device_)) {}

// The page stays: a signal may still be counted in it.
Guardian::~Guardian() {
  if (page_ != nullptr) close(control_);
}

void Guardian::join(const MpiSession& session, const std::string& device) {
  agree_on_guardians(session, page_ != nullptr);
  if (page_ == nullptr) return;
  GuardianOrders orders;
  orders.rank = static_cast<uint32_t>(session.rank());
  orders.size = static_cast<uint32_t>(session.size());
  orders.one_host = session.node_size() == session.size();
  orders.speaks = speaks(session);
  orders.name.set(rank_name(session.rank(), device));
  std::string introduction;  // "port secret address address …"
  agree(session, [&] {
    if (session.rank() != 0) return;
    const std::string secret = to_hex(random_bytes(32));
    orders.secret.set(secret);
    const GuardianAnswer answer = ask(control_, orders);
    introduction = fmt::format("{} {} {}", answer.port, secret, answer.text.get());
  });
  introduction = broadcast_text(session, introduction);
  agree(session, [&] {
    if (session.rank() == 0) return;
    const size_t port_end = introduction.find(' ');
    const size_t secret_end = introduction.find(' ', port_end + 1);
    WEFT_EXPECT(secret_end != std::string::npos);
    orders.lead_port = static_cast<uint16_t>(
        parse_count(introduction.substr(0, port_end), "a guardian's port", UINT16_MAX));
    orders.secret.set(introduction.substr(port_end + 1, secret_end - port_end - 1));
    orders.lead_addresses.set(introduction.substr(secret_end + 1));
    ask(control_, orders);
  });
  watch().end();
  page_->met.store(true);
  rank_ = session.rank();
  device_ = device;
}

void Guardian::rename(const std::string& device) {
  if (page_ == nullptr || rank_ < 0 || device == device_) return;
  GuardianOrders orders;
  orders.rename = true;
  orders.name.set(rank_name(rank_, device));
  ask(control_, orders);
  device_ = device;
}

void Guardian::set_drain_grace(double grace_s) {
  if (page_ != nullptr) page_->drain_grace_ns.store(static_cast<int64_t>(grace_s * 1e9));
}

void Guardian::fail(const std::string& what, int status) {
  page_->set_failure(what, status);
  const char wake = 0;
  (void)!send(control_, &wake, sizeof(wake), MSG_NOSIGNAL);  // else its next tick sees the page
  for (unsigned left = kEndSeconds; left > 0;) left = sleep(left);
  std::_Exit(status);
}

void Guardian::leave() {
  if (page_ != nullptr) page_->leaving.store(true);
}

}  // namespace weft::parallel
