// The session's facts, agreement on failures, and waiting without a core.
#include "parallel/mpi_session.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <new>
#include <set>
#include <thread>

#include "tests/support/mpi_test.h"

namespace weft::parallel {
namespace {

using testing::session;

std::string host() {
  char name[MPI_MAX_PROCESSOR_NAME];
  int length = 0;
  MPI_Get_processor_name(name, &length);
  return {name, static_cast<size_t>(length)};
}

// What agree() threw on this rank: text and status; status 0 where nothing was thrown.
std::pair<std::string, int> agreed(const std::function<void()>& step) {
  try {
    agree(session(), step);
  } catch (const AgreedError& e) {
    return {e.what(), e.status()};
  }
  return {"", 0};
}

TEST(MpiSession, KnowsRanksAndHosts) {
  int rank = -1;
  int size = 0;
  MPI_Comm_rank(session().world(), &rank);
  MPI_Comm_size(session().world(), &size);
  EXPECT_EQ(session().rank(), rank);
  EXPECT_EQ(session().size(), size);
  ASSERT_EQ(session().node_of().size(), static_cast<size_t>(size));
  EXPECT_EQ(session().node(), session().node_of()[static_cast<size_t>(rank)]);
  EXPECT_EQ(session().node_of()[0], 0);
  const auto& nodes = session().node_of();
  EXPECT_EQ(session().node_size(), std::count(nodes.begin(), nodes.end(), session().node()));
  EXPECT_EQ(session().node_rank(),
            std::count(nodes.begin(), nodes.begin() + rank, session().node()));
}

// Each number of first ranks as a world of its own, one after another; the others go on meanwhile.
TEST(MpiSession, FirstRanksAreAWorldOfTheirOwn) {
  for (int n = 1; n <= session().size(); ++n) {
    if (session().rank() < n) {
      const auto part = MpiSession::of_first(session(), n, 40 + n);
      EXPECT_EQ(part->rank(), session().rank());
      EXPECT_EQ(part->size(), n);
      EXPECT_EQ(part->node_of().size(), static_cast<size_t>(n));
      int sum = 0;
      const int one = 1;
      MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, part->world());
      EXPECT_EQ(sum, n);
      try {
        agree(*part, [&] {
          if (part->rank() == n - 1) throw input_error("the last has enough");
        });
        ADD_FAILURE() << "nothing was agreed on";
      } catch (const AgreedError& e) {
        EXPECT_NE(std::string(e.what()).find("the last has enough"), std::string::npos);
      }
      part->close();
    }
  }
  int sum = 0;
  const int one = 1;
  MPI_Allreduce(&one, &sum, 1, MPI_INT, MPI_SUM, session().world());
  EXPECT_EQ(sum, session().size());
}

TEST(MpiSession, ChecksStatus) {
  EXPECT_NO_THROW(check(MPI_SUCCESS, "MPI_Test"));
  try {
    int rank = 0;
    check(MPI_Send(&rank, 1, MPI_INT, session().size() + 5, 0, session().world()), "MPI_Send");
    FAIL() << "a send to nobody succeeded";
  } catch (const Error& e) {
    EXPECT_NE(std::string(e.what()).find("MPI_Send failed: MPI_ERR_RANK"), std::string::npos)
        << e.what();
    EXPECT_EQ(e.status(), 1);
  }
}

TEST(Agree, AllWell) {
  bool ran = false;
  EXPECT_NO_THROW(agree(session(), [&] { ran = true; }));
  EXPECT_TRUE(ran);
}

TEST(Agree, FirstRankFails) {
  const auto [text, status] = agreed([] {
    if (session().rank() == 0) throw input_error("cannot read {}", "x");
  });
  EXPECT_EQ(status, 2);
  const bool alone = session().size() == 1;
  EXPECT_EQ(text, alone ? "cannot read x" : "rank 0 (host " + host() + "): cannot read x");
}

TEST(Agree, LastRankFails) {
  const int last = session().size() - 1;
  const auto [text, status] = agreed([&] {
    if (session().rank() == last) throw run_error("no memory for {} GiB", 12);
  });
  EXPECT_EQ(status, 1);
  const bool alone = session().size() == 1;
  EXPECT_EQ(text, alone ? "no memory for 12 GiB"
                        : fmt::format("rank {} (host {}): no memory for 12 GiB", last, host()));
}

TEST(Agree, AllFailAlike) {
  const auto [text, status] = agreed([] { throw Error("no plan", 3); });
  EXPECT_EQ(status, 3);
  const int last = session().size() - 1;
  EXPECT_EQ(text,
            last == 0 ? "no plan" : fmt::format("ranks 0-{} (host {}): no plan", last, host()));
}

TEST(Agree, SeveralFailDifferently) {
  if (session().size() < 7) GTEST_SKIP() << "needs 7 ranks";
  const auto [text, status] = agreed([] {
    const int rank = session().rank();
    if (rank == 1 || rank == 2 || rank == 3 || rank == 6) throw run_error("disk full");
    if (rank == 4) throw input_error("tp 3");
  });
  EXPECT_EQ(status, 1) << "of the lowest rank that failed";
  EXPECT_EQ(text,
            fmt::format("ranks 1-3, 6 (host {0}): disk full\nrank 4 (host {0}): tp 3", host()));
}

TEST(Agree, OnOtherExceptions) {
  const int last = session().size() - 1;
  const auto on_last = [&](auto exception) {
    return agreed([&] {
      if (session().rank() == last) throw exception;
    });
  };
  auto [text, status] = on_last(std::bad_alloc());
  EXPECT_EQ(status, 1);
  EXPECT_TRUE(text.ends_with("out of memory")) << text;
  std::tie(text, status) = on_last(std::logic_error("broken promise"));
  EXPECT_EQ(status, 1);
  EXPECT_TRUE(text.ends_with("internal error: broken promise")) << text;
  std::tie(text, status) = on_last(42);
  EXPECT_EQ(status, 1);
  EXPECT_TRUE(text.ends_with("an exception of unknown type")) << text;
}

TEST(Agree, BoundsLongTexts) {
  if (session().size() == 1) GTEST_SKIP() << "one rank's text is not sent";
  // Characters of three bytes, begun at an odd place: none may be cut in two.
  std::string long_text = "x";
  while (long_text.size() < 100'000) long_text += "\xe2\x82\xac";
  const auto [text, status] = agreed([&] {
    if (session().rank() == 0) throw run_error("{}", long_text);
  });
  EXPECT_EQ(status, 1);
  EXPECT_LT(text.size(), 4300u);
  EXPECT_GT(text.size(), 4000u);
  EXPECT_TRUE(text.ends_with("\xe2\x82\xac...")) << text.substr(text.size() - 10);
}

TEST(Agree, AgainAfterAFailure) {
  for (int round = 0; round < 20; ++round) {
    const auto [text, status] = agreed([&] {
      if (round % 2 == 0 && session().rank() == round % session().size()) throw Error("odd one", 2);
    });
    EXPECT_EQ(status, round % 2 == 0 ? 2 : 0) << round;
  }
}

double cpu_seconds() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

TEST(WaitGently, AnIdleRankLeavesItsCoreAlone) {
  if (session().size() == 1) GTEST_SKIP() << "needs 2 ranks";
  using namespace std::chrono_literals;
  int value = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  check(MPI_Ibarrier(session().world(), &request), "MPI_Ibarrier");
  wait_gently(&request);
  if (session().rank() == 0) {
    std::this_thread::sleep_for(1s);
    value = 17;
  }
  const double before = cpu_seconds();
  const auto start = std::chrono::steady_clock::now();
  check(MPI_Ibcast(&value, 1, MPI_INT, 0, session().world(), &request), "MPI_Ibcast");
  wait_gently(&request);
  const std::chrono::duration<double> waited = std::chrono::steady_clock::now() - start;
  EXPECT_EQ(value, 17);
  if (session().rank() == 0) return;
  EXPECT_GT(waited.count(), 0.8);
  const double share = (cpu_seconds() - before) / waited.count();
  RecordProperty("idle_percent", static_cast<int>(share * 100));
  EXPECT_LT(share, 0.05);
}

}  // namespace
}  // namespace weft::parallel
