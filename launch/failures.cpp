// Failures of a job on stderr, and the end of the job.
#include "launch/failures.h"

#include <unistd.h>

#include <cstdio>

namespace weft::launch {
namespace {

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "unknown";
}

}  // namespace

void say_and_close(parallel::MpiSession& session, const std::string& what) {
  if (session.rank() == 0) {
    fmt::print(stderr, "weft: {}\n", what);
    std::fflush(stderr);
  }
  parallel::check(MPI_Barrier(session.world()), "MPI_Barrier");
  session.close();
}

void end_job(parallel::MpiSession& session, parallel::Guardian& guardian, const std::string& what,
             int status) {
  if (guardian) guardian.fail(what, status);
  fmt::print(stderr, "weft: rank {} (host {}): {}\n", session.rank(), host_name(), what);
  std::fflush(stderr);
  session.abort(status);
}

}  // namespace weft::launch
