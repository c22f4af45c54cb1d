// Heartbeats, and what their absence means.
#include "parallel/guardian_peers.h"

#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <map>
#include <ranges>

#include "parallel/guardian_page.h"
#include "parallel/setup_steps.h"
#include "runtime/base/error.h"

namespace weft::parallel {
namespace {

constexpr int64_t kStrangerNs = 2'000'000'000;
constexpr size_t kMostStrangers = 256;  // beside the ranks that may come at once
constexpr const char* kSilent =
    "no heartbeat for 2 s: its host, or the network to it, is lost or stands still";
constexpr const char* kEnded = "its guardian has ended without a word";

Frame heartbeat(uint32_t rank, const Pulse& pulse) {
  const auto flags = static_cast<uint8_t>((pulse.rank_stopped ? kRankStopped : 0) |
                                          (pulse.all_stopped ? kAllStopped : 0));
  Frame frame{FrameKind::heartbeat, flags, rank, static_cast<int32_t>(pulse.n_drains), {}};
  if (pulse.activity != 0) frame.text = static_cast<char>(pulse.activity);
  return frame;
}

Cause from_frame(const Frame& frame) {
  const uint8_t kind = std::clamp<uint8_t>(frame.flags, 1, kMostFaultKind);
  return {static_cast<FaultKind>(kind), frame.status, frame.text};
}

}  // namespace

Followers::Followers(uint32_t n_ranks, std::string_view secret, const std::string& name)
    : n_ranks_(n_ranks), secret_(secret), name_(name), listener_(listen_anywhere()) {
  peers_.reserve(n_ranks);
}

void Followers::add_polls(std::vector<pollfd>& polls) const {
  if (listener_.socket.open()) polls.push_back({listener_.socket.fd(), POLLIN, 0});
  for (const Stranger& stranger : strangers_) polls.push_back({stranger.fd(), POLLIN, 0});
  for (const Peer& peer : peers_)
    if (!peer.gone)
      polls.push_back(
          {peer.link.fd(), static_cast<short>(POLLIN | (peer.link.queued() ? POLLOUT : 0)), 0});
}

void Followers::tick(int64_t now_ns, const Pulse& mine, std::vector<Cause>& causes) {
  meet_strangers(now_ns);
  for (Peer& peer : peers_) hear(peer, now_ns, causes);
  Pulse pulse = mine;
  pulse.all_stopped = mine.rank_stopped && all_stopped();
  for (Peer& peer : peers_) judge(peer, now_ns, pulse.all_stopped, causes);
  if (pulse == sent_ && now_ns - sent_ns_ < kHeartbeatNs) return;
  sent_ = pulse;
  sent_ns_ = now_ns;
  for (Peer& peer : peers_)
    if (!peer.gone) peer.link.send(heartbeat(0, pulse));
}

// Once all ranks are known the port is closed: nobody else has business here.
void Followers::meet_strangers(int64_t now_ns) {
  while (listener_.socket.open() && strangers_.size() < kMostStrangers + n_ranks_) {
    const int fd = accept4(listener_.socket.fd(), nullptr, nullptr, SOCK_CLOEXEC);
    if (fd < 0) break;
    strangers_.emplace_back(Socket(fd), secret_, now_ns);
  }
  std::erase_if(strangers_, [&](Stranger& stranger) {
    const Stranger::State state = stranger.hear();
    if (state == Stranger::State::proved) welcome(stranger, now_ns);
    return state != Stranger::State::unknown || now_ns - stranger.since_ns() > kStrangerNs;
  });
  if (peers_.size() + 1 < n_ranks_) return;
  listener_.socket = Socket();
  strangers_.clear();
}

void Followers::welcome(Stranger& stranger, int64_t now_ns) {
  const Frame& hello = stranger.hello();
  const bool known = std::any_of(peers_.begin(), peers_.end(),
                                 [&](const Peer& peer) { return peer.rank == hello.rank; });
  if (hello.rank == 0 || hello.rank >= n_ranks_ || known) return;
  const std::string name = hello.text;
  const uint32_t rank = hello.rank;
  Peer& peer = peers_.emplace_back(Peer{rank, name, stranger.take(), now_ns});
  peer.link.send({FrameKind::welcome, 0, 0, 0, name_});
}

void Followers::hear(Peer& peer, int64_t now_ns, std::vector<Cause>& causes) {
  if (peer.gone) return;
  peer.link.flush();
  std::vector<Frame> frames;
  const bool open = peer.link.receive(frames);
  for (const Frame& frame : frames) note(peer, frame, now_ns, causes);
  if (open) return;
  peer.gone = true;
  if (!peer.left)
    causes.push_back({FaultKind::guardian_lost, 1, fmt::format("{}: {}", peer.name, kEnded)});
}

void Followers::note(Peer& peer, const Frame& frame, int64_t now_ns, std::vector<Cause>& causes) {
  peer.heard_ns = now_ns;
  peer.rearmed = false;
  if (frame.kind == FrameKind::renamed) peer.name = frame.text;
  if (frame.kind == FrameKind::failure) causes.push_back(from_frame(frame));
  if (frame.kind == FrameKind::leaving) peer.left = true;
  if (frame.kind != FrameKind::heartbeat) return;
  peer.n_drains = static_cast<uint32_t>(frame.status);
  peer.activity = frame.text.size() == 1 ? static_cast<uint8_t>(frame.text.front()) : 0;
  const bool stopped = (frame.flags & kRankStopped) != 0;
  if (!stopped) peer.stopped_ns = 0;
  if (stopped && peer.stopped_ns == 0) peer.stopped_ns = now_ns;
}

// While all are stopped the job is suspended, and only then is nobody's stop a fault.
void Followers::judge(Peer& peer, int64_t now_ns, bool suspended, std::vector<Cause>& causes) {
  if (peer.gone || peer.left) return;
  if (suspended && peer.stopped_ns != 0) peer.stopped_ns = now_ns;
  if (peer.stopped_ns != 0 && now_ns - peer.stopped_ns > kLostNs)
    causes.push_back(
        {FaultKind::stopped, 1, fmt::format("{}: stopped (SIGSTOP) while others run", peer.name)});
  if (now_ns - peer.heard_ns > kLostNs)
    causes.push_back({FaultKind::silent, 1, fmt::format("{}: {}", peer.name, kSilent)});
}

void Followers::rearm(int64_t now_ns) {
  for (Peer& peer : peers_) {
    if (!peer.rearmed) peer.heard_ns = now_ns;
    peer.rearmed = true;
    if (peer.stopped_ns != 0) peer.stopped_ns = now_ns;
  }
}

void Followers::rename(const std::string& name) {
  name_ = name;
  for (Peer& peer : peers_)
    if (!peer.gone) peer.link.send({FrameKind::renamed, 0, 0, 0, name});
}

bool Followers::all_stopped() const {
  return std::all_of(peers_.begin(), peers_.end(),
                     [](const Peer& peer) { return peer.stopped_ns != 0; });
}

uint32_t Followers::n_drains() const {
  uint32_t most = 0;
  for (const Peer& peer : peers_) most = std::max(most, peer.n_drains);
  return most;
}

std::vector<std::string> Followers::activities() const {
  std::map<uint32_t, std::string> by_rank;
  for (const Peer& peer : peers_)
    if (peer.activity != 0)
      by_rank[peer.rank] = fmt::format("{}: {}", peer.name, activity_text(peer.activity));
  std::vector<std::string> lines;
  for (std::string& line : by_rank | std::views::values) lines.push_back(std::move(line));
  return lines;
}

void Followers::send_verdict(int status) {
  for (Peer& peer : peers_)
    if (!peer.gone) peer.link.send({FrameKind::verdict, 0, 0, status, {}});
}

void Followers::send_leaving() {
  for (Peer& peer : peers_)
    if (!peer.gone) peer.link.send({FrameKind::leaving, 0, 0, 0, {}});
}

void Followers::close(int limit_ms) {
  for (Peer& peer : peers_)
    if (!peer.gone) peer.link.finish();
  const int64_t end_ns = monotonic_ns() + limit_ms * int64_t{1'000'000};
  std::vector<Frame> ignored;
  for (;;) {
    std::vector<pollfd> polls;
    for (Peer& peer : peers_) {
      if (!peer.gone) peer.gone = !peer.link.receive(ignored);
      if (!peer.gone) polls.push_back({peer.link.fd(), POLLIN, 0});
    }
    const int64_t left_ms = (end_ns - monotonic_ns()) / 1'000'000;
    if (polls.empty() || left_ms <= 0) return;
    poll(polls.data(), polls.size(), static_cast<int>(left_ms));
  }
}

Lead::Lead(GuardianLink link, const std::string& name, uint32_t rank, int64_t now_ns)
    : link_(std::move(link)), name_(name), rank_(rank), heard_ns_(now_ns) {}

void Lead::add_polls(std::vector<pollfd>& polls) const {
  if (lost_ || left_) return;
  polls.push_back({link_.fd(), static_cast<short>(POLLIN | (link_.queued() ? POLLOUT : 0)), 0});
}

std::optional<Cause> Lead::tick(int64_t now_ns, const Pulse& mine) {
  if (lost_ || left_) return std::nullopt;
  link_.flush();
  std::vector<Frame> frames;
  const bool open = link_.receive(frames);
  for (const Frame& frame : frames) {
    heard_ns_ = now_ns;
    rearmed_ = false;
    if (frame.kind == FrameKind::renamed) name_ = frame.text;
    if (frame.kind == FrameKind::verdict) verdict_ = frame.status;
    if (frame.kind == FrameKind::leaving) left_ = true;
    if (frame.kind == FrameKind::heartbeat) all_stopped_ = (frame.flags & kAllStopped) != 0;
  }
  if (verdict_ || left_) return std::nullopt;
  if (!open || now_ns - heard_ns_ > kLostNs) {
    lost_ = true;
    return Cause{open ? FaultKind::silent : FaultKind::guardian_lost, 1,
                 fmt::format("{}: {}", name_, open ? kSilent : kEnded)};
  }
  if (mine == sent_ && now_ns - sent_ns_ < kHeartbeatNs) return std::nullopt;
  sent_ = mine;
  sent_ns_ = now_ns;
  link_.send(heartbeat(rank_, mine));
  return std::nullopt;
}

void Lead::rearm(int64_t now_ns) {
  if (!rearmed_) heard_ns_ = now_ns;
  rearmed_ = true;
}

void Lead::rename(const std::string& name) {
  if (!lost_ && !left_) link_.send({FrameKind::renamed, 0, rank_, 0, name});
}

void Lead::report(const Cause& cause) {
  link_.send(
      {FrameKind::failure, static_cast<uint8_t>(cause.kind), rank_, cause.status, cause.line});
}

void Lead::send_leaving() {
  link_.send({FrameKind::leaving, 0, rank_, 0, {}});
  link_.finish();
}

}  // namespace weft::parallel
