// A job whose stderr nobody reads, as behind a pager or a paused terminal, ends all the same.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>

namespace weft::test {
namespace {

// A pipe that takes no more; its reader does not read.
std::array<int, 2> full_pipe() {
  std::array<int, 2> ends{};
  EXPECT_EQ(pipe2(ends.data(), O_CLOEXEC), 0);
  const int flags = fcntl(ends[1], F_GETFL);
  fcntl(ends[1], F_SETFL, flags | O_NONBLOCK);
  const std::string noise(4096, '.');
  while (write(ends[1], noise.data(), noise.size()) > 0) {
  }
  fcntl(ends[1], F_SETFL, flags);
  return ends;
}

TEST(BlockedStderr, HoldsNoFailureUp) {
  const std::array<int, 2> ends = full_pipe();
  const pid_t job = fork();
  ASSERT_GE(job, 0);
  if (job == 0) {
    dup2(ends[1], STDERR_FILENO);
    execl(WEFT_GUARDIAN_PROGRAM, WEFT_GUARDIAN_PROGRAM, "0", "throw", nullptr);
    _exit(127);
  }
  int status = 0;
  pid_t ended = 0;
  for (int i = 0; i < 600 && ended == 0; ++i) {
    usleep(100'000);
    ended = waitpid(job, &status, WNOHANG);
  }
  if (ended == 0) {
    kill(job, SIGKILL);
    waitpid(job, &status, 0);
  }
  close(ends[0]);
  close(ends[1]);
  ASSERT_EQ(ended, job) << "still there after a minute";
  EXPECT_EQ(WEXITSTATUS(status), 2) << "the error's own";
}

}  // namespace
}  // namespace weft::test
