// The pool covers its work once, passes exceptions on, and sleeps when there is none.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <chrono>
#include <stdexcept>
#include <thread>
#include <vector>

#include "kernels/device.h"

namespace weft::kernels {
namespace {

TEST(ThreadPool, CoversEveryIndexOnceInWholeGrains) {
  for (size_t n_threads : {1, 2, 3, 5}) {
    ThreadPool pool(n_threads);
    EXPECT_EQ(pool.n_threads(), n_threads);
    for (size_t n : {0, 1, 7, 31, 33, 64, 1000})
      for (size_t grain : {1, 3, 16, 100}) {
        std::vector<std::atomic<int>> hits(n);
        pool.split(n, grain, [&](size_t begin, size_t end) {
          EXPECT_EQ(begin % grain, 0u);
          EXPECT_TRUE(end == n || (end - begin) % grain == 0) << begin << " " << end;
          for (size_t i = begin; i < end; ++i) ++hits[i];
        });
        for (size_t i = 0; i < n; ++i) EXPECT_EQ(hits[i], 1) << n << " / " << grain << " at " << i;
      }
  }
}

TEST(ThreadPool, SmallWorkStaysOnTheCaller) {
  ThreadPool pool(3);
  size_t calls = 0;
  const auto caller = std::this_thread::get_id();
  pool.split(16, 16, [&](size_t, size_t) {
    ++calls;
    EXPECT_EQ(std::this_thread::get_id(), caller);
  });
  EXPECT_EQ(calls, 1u);
}

TEST(ThreadPool, WorkersTakePart) {
  ThreadPool pool(2);
  std::atomic<int> waiting{0};
  // Each range waits for the other, so one thread alone would not come to an end.
  pool.split(2, 1, [&](size_t, size_t) {
    ++waiting;
    while (waiting < 2) std::this_thread::yield();
  });
  EXPECT_EQ(waiting, 2);
}

TEST(ThreadPool, RethrowsAndWorksOn) {
  for (size_t n_threads : {1, 2, 4}) {
    ThreadPool pool(n_threads);
    for (int round = 0; round < 50; ++round) {
      EXPECT_THROW(pool.split(100, 1,
                              [&](size_t begin, size_t end) {
                                if (begin <= 40 && 40 < end) throw std::domain_error("forty");
                              }),
                   std::domain_error);
      std::atomic<size_t> sum{0};
      pool.split(100, 1, [&](size_t begin, size_t end) {
        for (size_t i = begin; i < end; ++i) sum += i;
      });
      EXPECT_EQ(sum, 4950u);
    }
  }
}

// Ranges of one job must never run with another's arguments, however late a worker wakes.
TEST(ThreadPool, ManyJobsInARow) {
  ThreadPool pool(4);
  for (size_t job = 0; job < 20000; ++job) {
    std::atomic<size_t> sum{0};
    const size_t n = job % 40;
    pool.split(n, 1 + job % 3, [&](size_t begin, size_t end) { sum += end - begin; });
    ASSERT_EQ(sum, n) << "job " << job;
    if (job % 5000 == 0) std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
}

TEST(ThreadPool, IdleWorkersUseNoCore) {
  ThreadPool pool(4);
  pool.split(100, 1, [](size_t, size_t) {});
  const auto cpu_ms = [] {
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000 +
           (usage.ru_utime.tv_usec + usage.ru_stime.tv_usec) / 1000;
  };
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const auto before = cpu_ms();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_LT(cpu_ms() - before, 30);
}

}  // namespace
}  // namespace weft::kernels
