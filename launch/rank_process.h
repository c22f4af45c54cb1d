// What every rank of a job goes through around its work: a guardian, a place, MPI, and the one way
// in which failures are told.
#pragma once

#include <functional>

#include "parallel/binding.h"
#include "parallel/guardian.h"
#include "parallel/mpi_session.h"

namespace weft::launch {

struct RankOptions {
  bool guardian = true;
  parallel::BindOptions bind;
  bool verbose = false;
};

struct RankProcess {
  const parallel::MpiSession& session;
  parallel::Guardian& guardian;
  parallel::Binding& binding;  // as far as the launcher's word goes; preflight settles it
};

// Starts all that, runs `work`, and ends MPI in order. Errors that all ranks agree on are said once
// by rank 0; any other ends the whole job with the rank's name before it. Throws AlreadySaid.
void as_rank(const RankOptions& options, const std::function<void(RankProcess&)>& work);

}  // namespace weft::launch
