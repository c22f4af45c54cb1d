// What tests under mpirun share: the session that their main has started.
#pragma once

#include "parallel/mpi_session.h"

namespace weft::testing {

const parallel::MpiSession& session();

}  // namespace weft::testing
