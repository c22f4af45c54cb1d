// The other guardians: rank 0's hears all, all hear rank 0's. Heartbeats every half second; two
// seconds of silence, or an end of the stream that was not announced, is a loss.
#pragma once

#include <poll.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/fault.h"
#include "parallel/guardian_link.h"

namespace weft::parallel {

constexpr int64_t kHeartbeatNs = 500'000'000;
constexpr int64_t kLostNs = 2'000'000'000;

// A fault and the line that says it, "rank 3 (host nodeB, CPU): killed by signal 9 (Killed)".
struct Cause {
  FaultKind kind = FaultKind::error;
  int32_t status = 1;
  std::string line;
};

// What goes with every heartbeat.
struct Pulse {
  bool rank_stopped = false;
  bool all_stopped = false;
  uint32_t n_drains = 0;
  uint8_t activity = 0;  // of set-up
  bool operator==(const Pulse&) const = default;
};

// Rank 0's guardian.
class Followers {
 public:
  Followers(uint32_t n_ranks, std::string_view secret, const std::string& name);

  uint16_t port() const { return listener_.port; }
  void add_polls(std::vector<pollfd>& polls) const;
  // Takes what has come and sends what is due. Appends causes that were told or are seen.
  void tick(int64_t now_ns, const Pulse& mine, std::vector<Cause>& causes);
  // The guardian itself was not running: nobody is late. Once for each word that was heard, or a
  // guardian that is held up again and again would never find a loss.
  void rearm(int64_t now_ns);
  // What this rank is called from now on, here and by the others.
  void rename(const std::string& name);

  bool all_stopped() const;  // every rank but this one, which the caller knows
  uint32_t n_drains() const;
  // "rank 2 (host b, CPU): in preflight step "memory"" of every follower that is in set-up, by
  // rank.
  std::vector<std::string> activities() const;
  void send_verdict(int status);
  // This rank has ended in order; the others need not hear of us any more.
  void send_leaving();
  // Until all that was sent has left and the others have hung up, but no longer than limit_ms.
  void close(int limit_ms);

 private:
  struct Peer {
    uint32_t rank = 0;
    std::string name;
    GuardianLink link;
    int64_t heard_ns = 0;
    bool rearmed = false;    // since it was heard
    int64_t stopped_ns = 0;  // since when its rank is stopped; 0: it runs
    uint32_t n_drains = 0;
    uint8_t activity = 0;
    bool left = false;
    bool gone = false;
  };
  void meet_strangers(int64_t now_ns);
  void welcome(Stranger& stranger, int64_t now_ns);
  void hear(Peer& peer, int64_t now_ns, std::vector<Cause>& causes);
  void note(Peer& peer, const Frame& frame, int64_t now_ns, std::vector<Cause>& causes);
  void judge(Peer& peer, int64_t now_ns, bool suspended, std::vector<Cause>& causes);

  uint32_t n_ranks_;
  std::string secret_;
  std::string name_;
  Listener listener_;
  std::vector<Stranger> strangers_;
  std::vector<Peer> peers_;
  Pulse sent_;
  int64_t sent_ns_ = 0;
};

// Any other rank's guardian: its tie to rank 0's.
class Lead {
 public:
  Lead(GuardianLink link, const std::string& name, uint32_t rank, int64_t now_ns);

  void add_polls(std::vector<pollfd>& polls) const;
  // A cause where rank 0's guardian is lost.
  std::optional<Cause> tick(int64_t now_ns, const Pulse& mine);
  void rearm(int64_t now_ns);
  void rename(const std::string& name);

  bool all_stopped() const { return all_stopped_; }
  bool lost() const { return lost_; }
  // The status to end with, once rank 0's guardian has said the cause.
  std::optional<int> verdict() const { return verdict_; }
  void report(const Cause& cause);
  void send_leaving();

 private:
  GuardianLink link_;
  std::string name_;
  uint32_t rank_;
  int64_t heard_ns_;
  bool rearmed_ = false;
  int64_t sent_ns_ = 0;
  Pulse sent_;
  bool all_stopped_ = false;
  bool left_ = false;
  bool lost_ = false;
  std::optional<int> verdict_;
};

}  // namespace weft::parallel
