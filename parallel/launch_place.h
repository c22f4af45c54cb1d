// What the launcher's variables tell a process before MPI has started: which of its host's ranks it
// is. MPI knows better, later.
#pragma once

#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

namespace weft::parallel {

struct LaunchPlace {
  size_t local_rank = 0;
  size_t local_size = 1;
  std::string launcher;        // "Open MPI"
  bool asked_unbound = false;  // mpirun --bind-to none
};

using Environment = std::function<const char*(const char* name)>;  // as std::getenv

// Of Open MPI, Hydra (MPICH, Intel MPI), MVAPICH, PMI and Slurm, the innermost that started this
// process. None where there was no launcher, or where it tells no number of ranks.
std::optional<LaunchPlace> launch_place(const Environment& environment);

// Slurm's "4(x2),3": tasks of node number `node`; none where it can't be read.
std::optional<size_t> slurm_tasks_of(std::string_view list, size_t node);

}  // namespace weft::parallel
