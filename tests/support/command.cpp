// Child processes with a time limit, their two outputs caught apart.
#include "tests/support/command.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <stdexcept>

namespace weft::test {
namespace {

using Clock = std::chrono::steady_clock;

[[noreturn]] void become(const std::vector<std::string>& arguments, int out, int err) {
  setpgid(0, 0);
  dup2(open("/dev/null", O_RDONLY), 0);
  dup2(out, 1);
  dup2(err, 2);
  setenv("OMPI_ALLOW_RUN_AS_ROOT", "1", 1);
  setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1", 1);
  std::vector<char*> raw;
  for (const std::string& argument : arguments) raw.push_back(const_cast<char*>(argument.c_str()));
  raw.push_back(nullptr);
  execvp(raw[0], raw.data());
  _exit(127);
}

// Reads what is there; false at the end of the stream.
bool drain(int fd, std::string& to) {
  char buffer[65536];
  const ssize_t n = read(fd, buffer, sizeof(buffer));
  if (n > 0) to.append(buffer, static_cast<size_t>(n));
  return n > 0;
}

// Until both streams have ended, or time has run out.
bool collect(int out, int err, CommandResult& result, Clock::time_point deadline) {
  pollfd streams[2] = {{out, POLLIN, 0}, {err, POLLIN, 0}};
  while (streams[0].fd >= 0 || streams[1].fd >= 0) {
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0 || poll(streams, 2, static_cast<int>(left)) == 0) return false;
    if (streams[0].revents != 0 && !drain(out, result.out)) streams[0].fd = -1;
    if (streams[1].revents != 0 && !drain(err, result.err)) streams[1].fd = -1;
  }
  return true;
}

}  // namespace

CommandResult run_command(const std::vector<std::string>& arguments, int timeout_s) {
  int out[2], err[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0)
    throw std::runtime_error("no pipe for a child process");
  const pid_t child = fork();
  if (child == 0) become(arguments, out[1], err[1]);
  close(out[1]);
  close(err[1]);
  CommandResult result;
  const auto deadline = Clock::now() + std::chrono::seconds(timeout_s);
  result.timed_out = !collect(out[0], err[0], result, deadline);
  if (result.timed_out) kill(-child, SIGKILL);
  close(out[0]);
  close(err[0]);
  int status = 0;
  waitpid(child, &status, 0);
  result.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return result;
}

CommandResult run_weft(int n_ranks, const std::vector<std::string>& arguments, int timeout_s) {
  std::vector<std::string> all;
  if (n_ranks > 1)
    all = {"mpirun", "--oversubscribe", "--bind-to", "none", "-n", std::to_string(n_ranks)};
  all.push_back(WEFT_BINARY);
  all.insert(all.end(), arguments.begin(), arguments.end());
  return run_command(all, timeout_s);
}

TemporaryFolder::TemporaryFolder() {
  std::string form = std::filesystem::temp_directory_path() / "weft-test-XXXXXX";
  if (mkdtemp(form.data()) == nullptr) throw std::runtime_error("cannot make " + form);
  path_ = form;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

}  // namespace weft::test
