// The main of test programs that run on several ranks: all run the same tests, and a test has
// failed where it failed on any rank. Rank 0 prints as usual; the others print their failures.
#include <gtest/gtest.h>

#include <chrono>
#include <cstdio>
#include <exception>

#include "parallel/mpi_session.h"
#include "parallel/patience.h"
#include "tests/support/mpi_test.h"

namespace weft::testing {
namespace {

using parallel::check;
using parallel::MpiSession;

// A rank that failed may have left the others in the middle of an operation.
constexpr std::chrono::seconds kLongestWait{20};

const MpiSession* current_session = nullptr;

class RankListener : public ::testing::EmptyTestEventListener {
 public:
  explicit RankListener(MpiSession& session) : session_(session) {}
  int n_failed() const { return n_failed_; }

  void OnTestPartResult(const ::testing::TestPartResult& result) override {
    if (session_.rank() == 0 || !result.failed()) return;
    std::fprintf(stderr, "rank %d: %s:%d: %s\n", session_.rank(), result.file_name(),
                 result.line_number(), result.message());
  }

  void OnTestEnd(const ::testing::TestInfo& info) override {
    const int mine = info.result()->Failed() ? 1 : 0;
    int failed = 0;
    MPI_Request request = MPI_REQUEST_NULL;
    check(MPI_Iallreduce(&mine, &failed, 1, MPI_INT, MPI_SUM, session_.world(), &request),
          "MPI_Iallreduce");
    if (!arrives(&request)) {
      std::fprintf(stderr, "rank %d: %s.%s: other ranks did not end the test\n", session_.rank(),
                   info.test_suite_name(), info.name());
      session_.abort(1);
    }
    if (failed == 0) return;
    ++n_failed_;
    if (session_.rank() == 0) {
      std::fprintf(stderr, "%s.%s failed on %d of %d ranks\n", info.test_suite_name(), info.name(),
                   failed, session_.size());
    }
  }

 private:
  static bool arrives(MPI_Request* request) {
    const auto end = std::chrono::steady_clock::now() + kLongestWait;
    parallel::Patience patience;
    int done = 0;
    while (true) {
      check(MPI_Test(request, &done, MPI_STATUS_IGNORE), "MPI_Test");
      if (done) return true;
      if (std::chrono::steady_clock::now() > end) return false;
      patience.pause();
    }
  }

  MpiSession& session_;
  int n_failed_ = 0;
};

int run_tests(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  MpiSession session(&argc, &argv);
  current_session = &session;
  ::testing::TestEventListeners& listeners = ::testing::UnitTest::GetInstance()->listeners();
  if (session.rank() != 0) delete listeners.Release(listeners.default_result_printer());
  auto* listener = new RankListener(session);  // gtest owns it
  listeners.Append(listener);
  const int mine = RUN_ALL_TESTS();
  const bool failed = mine != 0 || listener->n_failed() > 0;
  session.close();
  return failed ? 1 : 0;
}

}  // namespace

const MpiSession& session() { return *current_session; }

}  // namespace weft::testing

int main(int argc, char** argv) {
  try {
    return weft::testing::run_tests(argc, argv);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 1;
  }
}
