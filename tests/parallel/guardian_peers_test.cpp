// Rank 0's guardian and the others over the loopback, on a clock of the test's own.
#include "parallel/guardian_peers.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <thread>

#include "parallel/guardian_page.h"
#include "runtime/base/error.h"

namespace weft::parallel {
namespace {

constexpr int64_t kSecond = 1'000'000'000;
const std::string kSecret(64, 's');

class Peers : public testing::Test {
 protected:
  // Rank 0's guardian ticks while the caller's handshake runs.
  template <class Meet>
  void meet(Meet&& other) {
    std::atomic<bool> done{false};
    std::thread thread([&] {
      other();
      done = true;
    });
    while (!done) tick();
    thread.join();
  }

  Lead join(uint32_t rank, const std::string& secret = kSecret) {
    std::optional<Lead> lead;
    std::string problem;
    meet([&] {
      try {
        std::string lead_name;
        GuardianLink link = greet_lead("127.0.0.1", port_, secret, rank,
                                       fmt::format("rank {}", rank), 500, lead_name);
        EXPECT_EQ(lead_name, "rank 0");
        lead.emplace(std::move(link), lead_name, rank, now_);
      } catch (const Error& error) {
        problem = error.what();
      }
    });
    if (!lead) throw Error(problem);
    return std::move(*lead);
  }

  void tick(Pulse pulse = {}) {
    followers_.tick(now_, pulse, causes_);
    const timespec pause{0, 2'000'000};
    nanosleep(&pause, nullptr);
  }

  Followers followers_{3, kSecret, "rank 0"};
  uint16_t port_ = followers_.port();
  int64_t now_ = 100 * kSecond;
  std::vector<Cause> causes_;
};

TEST_F(Peers, HeartbeatsKeepAllAlive) {
  Lead one = join(1), two = join(2);
  for (int i = 0; i < 40; ++i) {
    now_ += kSecond / 4;
    EXPECT_FALSE(one.tick(now_, {}));
    EXPECT_FALSE(two.tick(now_, {}));
    tick();
  }
  EXPECT_TRUE(causes_.empty());
}

TEST_F(Peers, SilenceForTwoSecondsIsALoss) {
  Lead one = join(1), two = join(2);
  for (int i = 0; i < 7; ++i) {
    now_ += kSecond / 4;
    EXPECT_FALSE(one.tick(now_, {}));
    tick();
    EXPECT_TRUE(causes_.empty()) << i;
  }
  now_ += kSecond / 2;
  one.tick(now_, {});
  tick();
  ASSERT_EQ(causes_.size(), 1u);
  EXPECT_EQ(causes_[0].kind, FaultKind::silent);
  EXPECT_EQ(causes_[0].line.rfind("rank 2: no heartbeat", 0), 0u) << causes_[0].line;
}

TEST_F(Peers, ALeadThatIsSilentOrGoneIsALoss) {
  Lead one = join(1);
  now_ += kLostNs + 1;
  const auto lost = one.tick(now_, {});
  ASSERT_TRUE(lost.has_value());
  EXPECT_EQ(lost->kind, FaultKind::silent);
  EXPECT_TRUE(one.lost());
  Lead two = join(2);
  followers_.close(0);
  followers_ = Followers(1, kSecret, "rank 0");  // its end closes all connections
  const auto gone = two.tick(now_, {});
  ASSERT_TRUE(gone.has_value());
  EXPECT_EQ(gone->kind, FaultKind::guardian_lost);
}

TEST_F(Peers, AnEndWithoutAWordIsALossAndWithOneIsNot) {
  {
    Lead one = join(1);
    one.send_leaving();
  }
  tick();
  EXPECT_TRUE(causes_.empty());
  { Lead two = join(2); }
  tick();
  ASSERT_EQ(causes_.size(), 1u);
  EXPECT_EQ(causes_[0].kind, FaultKind::guardian_lost);
}

TEST_F(Peers, FailureReachesRank0AndTheVerdictAll) {
  Lead one = join(1), two = join(2);
  one.report({FaultKind::died, 137, "rank 1: killed"});
  tick();
  ASSERT_EQ(causes_.size(), 1u);
  EXPECT_EQ(causes_[0].kind, FaultKind::died);
  EXPECT_EQ(causes_[0].status, 137);
  EXPECT_EQ(causes_[0].line, "rank 1: killed");
  followers_.send_verdict(137);
  one.tick(now_, {});
  two.tick(now_, {});
  EXPECT_EQ(one.verdict(), 137);
  EXPECT_EQ(two.verdict(), 137);
}

// One stopped rank is a fault after two seconds; all of them together are a suspended job.
TEST_F(Peers, StopsAreJudgedTogether) {
  Lead one = join(1), two = join(2);
  Pulse stopped;
  stopped.rank_stopped = true;
  for (int i = 0; i < 40; ++i) {
    now_ += kSecond / 4;
    one.tick(now_, stopped);
    two.tick(now_, stopped);
    tick(stopped);
  }
  EXPECT_TRUE(causes_.empty());
  EXPECT_TRUE(one.all_stopped());
  for (int i = 0; i < 12; ++i) {
    now_ += kSecond / 4;
    one.tick(now_, stopped);
    two.tick(now_, {});
    tick();
  }
  ASSERT_FALSE(causes_.empty());
  EXPECT_EQ(causes_[0].kind, FaultKind::stopped);
  EXPECT_EQ(causes_[0].line.rfind("rank 1: stopped", 0), 0u) << causes_[0].line;
  EXPECT_FALSE(one.all_stopped());
}

// A guardian that stands still now and then is not late itself, and still finds a loss.
TEST_F(Peers, TimeThatNobodyHadCountsOnceForEachWord) {
  Lead one = join(1), two = join(2);
  const auto stand_still = [&] {
    now_ += 3 * kSecond / 2;
    followers_.rearm(now_);
    one.rearm(now_);
  };
  for (int i = 0; i < 6; ++i) {
    stand_still();
    tick();
    EXPECT_FALSE(one.tick(now_, {})) << i;
    EXPECT_FALSE(two.tick(now_, {})) << i;
    tick();
    EXPECT_TRUE(causes_.empty()) << i;
  }
  for (int i = 0; i < 3; ++i) {  // rank 2 is gone
    stand_still();
    tick();
    EXPECT_FALSE(one.tick(now_, {}));
    tick();
  }
  ASSERT_FALSE(causes_.empty());
  EXPECT_EQ(causes_[0].line.rfind("rank 2: no heartbeat", 0), 0u) << causes_[0].line;
  std::optional<Cause> lost;
  for (int i = 0; i < 3 && !lost; ++i) {  // and so is rank 0
    stand_still();
    lost = one.tick(now_, {});
  }
  ASSERT_TRUE(lost);
  EXPECT_EQ(lost->kind, FaultKind::silent);
}

TEST_F(Peers, NewNamesAreSaid) {
  Lead one = join(1);
  one.rename("rank 1 (GPU 2)");
  tick();
  now_ += kLostNs + 1;
  tick();
  ASSERT_FALSE(causes_.empty());
  EXPECT_EQ(causes_[0].line.rfind("rank 1 (GPU 2): no heartbeat", 0), 0u) << causes_[0].line;
  followers_.rename("rank 0 (GPU 1)");
  EXPECT_FALSE(one.tick(now_, {}));
  now_ += kLostNs + 1;
  const auto lost = one.tick(now_, {});
  ASSERT_TRUE(lost);
  EXPECT_EQ(lost->line.rfind("rank 0 (GPU 1): no heartbeat", 0), 0u) << lost->line;
}

TEST_F(Peers, DrainRequestsTravelWithTheHeartbeat) {
  Lead one = join(1), two = join(2);
  Pulse asked;
  asked.n_drains = 1;
  two.tick(now_, asked);
  tick();
  EXPECT_EQ(followers_.n_drains(), 1u);
}

TEST_F(Peers, AnotherSecretIsTurnedAway) {
  EXPECT_THROW(join(1, std::string(64, 't')), Error);
  Lead one = join(1);  // the place is still free
  EXPECT_TRUE(causes_.empty());
}

TEST_F(Peers, ARankThatIsThereOrCantBeIsTurnedAway) {
  Lead one = join(1);
  EXPECT_THROW(join(1), Error);
  EXPECT_THROW(join(0), Error);
  EXPECT_THROW(join(3), Error);
}

TEST_F(Peers, HostileStrangersHoldNobodyUp) {
  std::vector<Socket> silent;
  for (int i = 0; i < 100; ++i) silent.push_back(connect_to("127.0.0.1", port_, 500));
  for (const std::string& noise : {std::string(100'000, 'x'), std::string(16, '\0') + "WFTG",
                                   std::string("GET / HTTP/1.1\r\n\r\n")}) {
    const Socket loud = connect_to("127.0.0.1", port_, 500);
    for (int i = 0; i < 5; ++i) tick();
    (void)!send(loud.fd(), noise.data(), noise.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    for (int i = 0; i < 5; ++i) tick();
  }
  Lead one = join(1), two = join(2);
  tick();
  EXPECT_TRUE(causes_.empty());
  EXPECT_THROW(connect_to("127.0.0.1", port_, 500), Error) << "the port closes when all are there";
}

}  // namespace
}  // namespace weft::parallel
