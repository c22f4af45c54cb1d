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
#include <utility>

namespace weft::test {
namespace {

using Clock = std::chrono::steady_clock;

// As a shell would leave them: whatever runs the tests may have blocked or ignored signals, which a
// program inherits, and mpirun then never forwards them.
void reset_signals() {
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  for (const int signal_number : {SIGINT, SIGTERM, SIGUSR1, SIGUSR2, SIGCHLD, SIGPIPE})
    signal(signal_number, SIG_DFL);
}

[[noreturn]] void become(const std::vector<std::string>& arguments, int out, int err) {
  setpgid(0, 0);
  reset_signals();
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

}  // namespace

Command::Command(const std::vector<std::string>& arguments) {
  int out[2], err[2];
  if (pipe2(out, O_CLOEXEC) != 0 || pipe2(err, O_CLOEXEC) != 0)
    throw std::runtime_error("no pipe for a child process");
  pid_ = fork();
  if (pid_ == 0) become(arguments, out[1], err[1]);
  close(out[1]);
  close(err[1]);
  out_ = out[0];
  err_ = err[0];
}

Command::~Command() {
  if (pid_ < 0) return;
  kill(-pid_, SIGKILL);
  finish(5);
}

// Until both streams have ended (or stderr holds the text); false where time has run out before.
bool Command::collect(Clock::time_point deadline, const std::string* until) {
  while (out_ >= 0 || err_ >= 0) {
    if (until != nullptr && result_.err.find(*until) != std::string::npos) return true;
    pollfd streams[2] = {{out_, POLLIN, 0}, {err_, POLLIN, 0}};
    const auto left =
        std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0 || poll(streams, 2, static_cast<int>(left)) == 0) return false;
    if (streams[0].revents != 0 && !drain(out_, result_.out)) close(std::exchange(out_, -1));
    if (streams[1].revents != 0 && !drain(err_, result_.err)) close(std::exchange(err_, -1));
  }
  return until == nullptr;
}

bool Command::says(const std::string& text, int timeout_s) {
  return collect(Clock::now() + std::chrono::seconds(timeout_s), &text);
}

CommandResult Command::finish(int timeout_s) {
  result_.timed_out = !collect(Clock::now() + std::chrono::seconds(timeout_s), nullptr);
  if (result_.timed_out) kill(-pid_, SIGKILL);
  for (int* fd : {&out_, &err_})
    if (*fd >= 0) close(std::exchange(*fd, -1));
  int status = 0;
  waitpid(std::exchange(pid_, -1), &status, 0);
  result_.status = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
  return result_;
}

CommandResult run_command(const std::vector<std::string>& arguments, int timeout_s) {
  return Command(arguments).finish(timeout_s);
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
