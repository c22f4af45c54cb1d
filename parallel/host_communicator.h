// The communicator on MPI over host memory, for CPU ranks. Written on point-to-point messages that
// are waited for without spinning, since MPI's own collectives hold a core while they wait.
#pragma once

#include <mpi.h>

#include <memory>
#include <span>

#include "parallel/communicator.h"
#include "parallel/mpi_session.h"

namespace weft::parallel {

// The group's ranks in the given world order; this rank must be one of them. A collective call of
// those ranks only (MPI_Comm_create_group with `tag`). `scratch_bytes` is the largest message of a
// reducing collective; all memory is taken here, none in an operation.
std::unique_ptr<Communicator> make_host_communicator(const MpiSession& session,
                                                     std::span<const int> world_ranks, int tag,
                                                     size_t scratch_bytes);

}  // namespace weft::parallel
