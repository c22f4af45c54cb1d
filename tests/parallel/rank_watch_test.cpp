// A guardian's watch over a child process that ends, stops or stalls.
#include "parallel/rank_watch.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <functional>
#include <new>

namespace weft::parallel {
namespace {

class Watched : public testing::Test {
 protected:
  Watched() {
    void* memory = mmap(nullptr, sizeof(GuardianPage), PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    page_ = new (memory) GuardianPage;
  }
  ~Watched() override {
    watch_.reset();
    if (child_ > 0) kill(child_, SIGKILL);
    munmap(page_, sizeof(GuardianPage));
  }

  void start(const std::function<void()>& work, pid_t launcher = 0) {
    child_ = fork();
    if (child_ == 0) {
      work();
      for (;;) pause();
    }
    watch_.emplace(child_, launcher, *page_);
  }

  // The first fault or end, within three seconds.
  std::optional<Fault> look() {
    for (int i = 0; i < 300; ++i) {
      if (auto fault = watch_->look(monotonic_ns())) return fault;
      if (watch_->left_with()) return std::nullopt;
      usleep(10'000);
    }
    return std::nullopt;
  }

  GuardianPage* page_ = nullptr;
  pid_t child_ = 0;
  std::optional<RankWatch> watch_;
};

TEST_F(Watched, DeathBySignal) {
  start([] { raise(SIGKILL); });
  const auto fault = look();
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->kind, FaultKind::died);
  EXPECT_EQ(fault->status, 128 + SIGKILL);
  EXPECT_EQ(fault->text, "killed by signal 9 (Killed)");
}

TEST_F(Watched, AnExitThatWasNotAnnounced) {
  start([] { _exit(0); });
  const auto fault = look();
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->kind, FaultKind::died);
  EXPECT_EQ(fault->status, 1) << "a job is not done because one rank thinks so";
  EXPECT_TRUE(watch_->exited());
}

TEST_F(Watched, AnExitInOrder) {
  start([this] {
    page_->leaving = true;
    _exit(2);
  });
  EXPECT_FALSE(look().has_value());
  EXPECT_EQ(watch_->left_with(), 2);
}

TEST_F(Watched, ACrashWhileLeaving) {
  start([this] {
    page_->leaving = true;
    raise(SIGKILL);
  });
  const auto fault = look();
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->status, 128 + SIGKILL);
}

TEST_F(Watched, TheRanksOwnWords) {
  start([this] { page_->set_failure("cannot read x", 2); });
  const auto fault = look();
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->kind, FaultKind::error);
  EXPECT_EQ(fault->status, 2);
  EXPECT_EQ(fault->text, "cannot read x");
}

TEST_F(Watched, WordsThatAreTooLongAreCut) {
  page_->set_failure(std::string(100'000, 'x'), 1);
  EXPECT_EQ(page_->failure_text().size(), kMostCauseBytes);
}

TEST_F(Watched, AStepPastItsLimitWhileWaiting) {
  start([this] {
    StepWatch steps(page_);
    steps.set_limit(0.7);
    steps.begin();
  });
  const auto fault = look();
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->kind, FaultKind::stalled);
  EXPECT_EQ(fault->status, 1);
}

TEST_F(Watched, StepsThatEndAreNoFault) {
  start([this] {
    StepWatch steps(page_);
    steps.set_limit(0.3);
    for (int i = 0; i < 200; ++i) {
      const WatchedStep step(steps);
      usleep(5'000);
    }
    page_->leaving = true;
    _exit(0);
  });
  EXPECT_FALSE(look().has_value());
  EXPECT_EQ(watch_->left_with(), 0);
}

TEST_F(Watched, WithoutALimitAStepMayTakeAnyTime) {
  start([this] {
    StepWatch steps(page_);
    steps.begin();
  });
  EXPECT_FALSE(watch_->look(monotonic_ns()).has_value());
  usleep(100'000);
  EXPECT_FALSE(watch_->look(monotonic_ns() + int64_t{1'000'000'000'000}).has_value());
}

TEST_F(Watched, ALostLauncher) {
  start([] {}, getppid() + 1);
  const auto fault = look();
  ASSERT_TRUE(fault.has_value());
  EXPECT_EQ(fault->kind, FaultKind::launcher_lost);
}

// While it is stopped its step's limit does not run: that is for the guardians together to judge.
TEST_F(Watched, AStopIsSeenAndHoldsTheLimit) {
  start([this] {
    StepWatch steps(page_);
    steps.set_limit(0.5);
    steps.begin();
    raise(SIGSTOP);
  });
  int64_t now = monotonic_ns();
  for (int i = 0; i < 100 && !watch_->stopped(); ++i) {
    usleep(10'000);
    watch_->look(now += 500'000'000);
  }
  ASSERT_TRUE(watch_->stopped());
  EXPECT_FALSE(watch_->look(now += 60'000'000'000).has_value());
  kill(child_, SIGCONT);
  for (int i = 0; i < 100 && watch_->stopped(); ++i) {
    usleep(10'000);
    watch_->look(now += 450'000'000);
  }
  EXPECT_FALSE(watch_->stopped());
  EXPECT_TRUE(watch_->look(now + 600'000'000).has_value());
}

TEST_F(Watched, KillEndsTheRank) {
  start([] {});
  watch_->kill_rank();
  EXPECT_EQ(kill(child_, 0), -1) << "reaped";
  child_ = 0;
}

TEST(DrainCount, TwiceAtOnceIsOneRequest) {
  DrainCount count;
  count.add(SIGTERM);
  count.add(SIGTERM);
  EXPECT_EQ(count.n, 1u);
  usleep(600'000);
  count.add(SIGINT);
  EXPECT_EQ(count.n, 2u);
  EXPECT_EQ(count.signal, SIGINT);
}

}  // namespace
}  // namespace weft::parallel
