// Reads /proc.
#include "tests/support/job_processes.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>

namespace weft::test {
namespace {

namespace fs = std::filesystem;

std::string read_all(const fs::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

// A variable's value in the environment of a process; empty where it is not set.
std::string variable(const std::string& environment, const std::string& name) {
  const std::string key = '\0' + name + '=';
  const size_t at = environment.find(key);
  return at == std::string::npos ? std::string() : environment.c_str() + at + key.size();
}

}  // namespace

std::vector<JobProcess> job_processes(const std::string& mark) {
  std::vector<JobProcess> found;
  for (const fs::directory_entry& entry : fs::directory_iterator("/proc")) {
    const std::string number = entry.path().filename();
    if (number.find_first_not_of("0123456789") != std::string::npos) continue;
    const std::string environment = '\0' + read_all(entry.path() / "environ");
    if (variable(environment, "WEFT_TEST_JOB") != mark) continue;
    const std::string stat = read_all(entry.path() / "stat");
    const size_t name_end = stat.rfind(')');
    if (name_end == std::string::npos || name_end + 2 >= stat.size()) continue;  // it has gone
    JobProcess process;
    process.pid = std::stoi(number);
    process.state = stat[name_end + 2];
    process.guardian = stat.find("(weft-guardian)") != std::string::npos;
    const std::string rank = variable(environment, "OMPI_COMM_WORLD_RANK");
    if (!rank.empty()) process.rank = std::stoi(rank);
    if (process.state != 'Z') found.push_back(process);
  }
  return found;
}

pid_t pid_of(const std::string& mark, int rank, bool guardian) {
  const std::vector<JobProcess> all = job_processes(mark);
  const auto one = std::find_if(all.begin(), all.end(), [&](const JobProcess& process) {
    return process.rank == rank && process.guardian == guardian;
  });
  return one == all.end() ? 0 : one->pid;
}

}  // namespace weft::test
