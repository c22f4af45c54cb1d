// How a job's failures reach the user: once, before any rank leaves.
#pragma once

#include <string>

#include "parallel/guardian.h"
#include "parallel/mpi_session.h"
#include "runtime/base/error.h"

namespace weft::launch {

// A failure that has been said: the process only ends with its status.
class AlreadySaid : public Error {
 public:
  explicit AlreadySaid(int status) : Error("said already", status) {}
};

// A failure that all ranks know: rank 0 says it, then all close in order. mpirun ends the others at
// the first rank that leaves with a status, so none may leave before the text is out.
void say_and_close(parallel::MpiSession& session, const std::string& what);

// A failure of this rank alone: says it with the rank's and host's names and ends the job
// everywhere, by the guardians where there are any.
[[noreturn]] void end_job(parallel::MpiSession& session, parallel::Guardian& guardian,
                          const std::string& what, int status);

}  // namespace weft::launch
