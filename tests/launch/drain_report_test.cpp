// What is said of the prompts that a drain left.
#include "launch/drain_report.h"

#include <gtest/gtest.h>
#include <signal.h>

#include <vector>

namespace weft::launch {
namespace {

using runtime::FinishReason;

Completion completion(FinishReason finish, size_t n_tokens) {
  Completion made;
  made.finish = finish;
  made.ids.assign(n_tokens, 7);
  return made;
}

TEST(DrainReport, CountsWhatIsLeft) {
  std::vector<Completion> all;
  all.push_back(completion(FinishReason::stop, 3));
  all.push_back(completion(FinishReason::length, 9));
  all.push_back(completion(FinishReason::cancelled, 1));
  all.push_back(completion(FinishReason::cancelled, 0));
  all.push_back(completion(FinishReason::cancelled, 0));
  EXPECT_EQ(drain_report(all, SIGTERM),
            "ended early by SIGTERM: of 5 prompts 2 done, 1 cut short, 2 not begun");
}

TEST(DrainReport, SaysNothingWhereAllIsDone) {
  std::vector<Completion> all;
  all.push_back(completion(FinishReason::stop, 3));
  EXPECT_EQ(drain_report(all, SIGUSR1), "");
}

}  // namespace
}  // namespace weft::launch
