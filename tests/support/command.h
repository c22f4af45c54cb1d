// Runs a program as a user would and gives back what it said.
#pragma once

#include <string>
#include <vector>

namespace weft::test {

struct CommandResult {
  int status = 0;  // exit status; 128 + signal where one ended it
  bool timed_out = false;
  std::string out;
  std::string err;
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
