// The processes of a job that a test has started: found by a mark in their environment, told apart
// by their rank's number and their name.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace weft::test {

struct JobProcess {
  pid_t pid = 0;
  int rank = -1;  // -1: the launcher and its helpers
  bool guardian = false;
  char state = '?';  // as in /proc: R, S, D, T, Z
};

// All that live (zombies don't) and whose environment holds WEFT_TEST_JOB=mark.
std::vector<JobProcess> job_processes(const std::string& mark);

// A rank's process, or its guardian's; 0 where there is none.
pid_t pid_of(const std::string& mark, int rank, bool guardian);

}  // namespace weft::test
