// Runs a program as a user would and gives back what it said.
#pragma once

#include <sys/types.h>

#include <chrono>
#include <string>
#include <vector>

namespace weft::test {

struct CommandResult {
  int status = 0;  // exit status; 128 + signal where one ended it
  bool timed_out = false;
  std::string out;
  std::string err;
};

// A program that runs beside the test.
class Command {
 public:
  Command(const std::vector<std::string>& arguments);
  ~Command();  // ends the whole process group
  Command(const Command&) = delete;
  Command& operator=(const Command&) = delete;

  pid_t pid() const { return pid_; }
  // Until its stderr holds the text; false where it ended, or the time has run out, before.
  bool says(const std::string& text, int timeout_s);
  // Waits for the end of the program and of both its outputs, with what was said so far.
  CommandResult finish(int timeout_s);

 private:
  bool collect(std::chrono::steady_clock::time_point deadline, const std::string* until);

  pid_t pid_ = -1;
  int out_ = -1;
  int err_ = -1;
  CommandResult result_;
};

// The whole process group is killed after the time limit.
CommandResult run_command(const std::vector<std::string>& arguments, int timeout_s = 120);

// `weft` with these arguments: alone for one rank, else under mpirun.
CommandResult run_weft(int n_ranks, const std::vector<std::string>& arguments, int timeout_s = 120);

// A folder of the test's own, removed with all that is in it.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

}  // namespace weft::test
