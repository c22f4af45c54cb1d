// Words to a reader, and to nobody.
#include "parallel/bounded_write.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <string>
#include <thread>

#include "parallel/core_wait.h"
#include "parallel/guardian_page.h"

namespace weft::parallel {
namespace {

class Pipe : public testing::Test {
 protected:
  void SetUp() override { ASSERT_EQ(pipe2(ends_.data(), O_CLOEXEC), 0); }
  void TearDown() override {
    for (const int end : ends_) close(end);
  }
  // Until nothing more goes in.
  void fill() {
    const int flags = fcntl(ends_[1], F_GETFL);
    fcntl(ends_[1], F_SETFL, flags | O_NONBLOCK);
    const std::string noise(4096, '.');
    while (write(ends_[1], noise.data(), noise.size()) > 0) {
    }
    fcntl(ends_[1], F_SETFL, flags);
  }

  std::array<int, 2> ends_{};
};

TEST_F(Pipe, TakesAllWhereSomebodyReads) {
  const std::string text(300'000, 'x');
  std::string got;
  std::thread reader([&] {
    std::array<char, 1000> piece{};
    while (got.size() < text.size()) {
      const ssize_t n = read(ends_[0], piece.data(), piece.size());
      if (n <= 0) return;
      got.append(piece.data(), static_cast<size_t>(n));
    }
  });
  write_within(ends_[1], text, 60'000);
  close(ends_[1]);
  ends_[1] = -1;
  reader.join();
  EXPECT_EQ(got.size(), text.size());
}

TEST_F(Pipe, ComesBackWhereNobodyDoes) {
  fill();
  write_within(ends_[1], "last words", 50);
  SUCCEED() << "a blocking write would still be there";
}

TEST(CoreWait, IsNoLongerThanTheTimeThatPassed) {
  CoreWait waited;
  for (int i = 0; i < 100; ++i) {
    const int64_t begin = monotonic_ns();
    waited.since_last();
    std::this_thread::yield();
    const int64_t wait = waited.since_last();
    EXPECT_GE(wait, 0);
    EXPECT_LE(wait, monotonic_ns() - begin);
  }
}

}  // namespace
}  // namespace weft::parallel
