// Slurm's word for the ranks of a job, for the time before they know each other: srun without -K
// leaves the others waiting for a rank that died.
#pragma once

#include <optional>
#include <string>

#include "parallel/launch_place.h"

namespace weft::parallel {

// "123.4", job and step, where srun itself started this process; none elsewhere (under mpirun in an
// allocation the step is mpirun's).
std::optional<std::string> slurm_step(const Environment& environment);

// Asks Slurm to kill every process of this process's step. Does not wait; where it isn't srun's, or
// there is no scancel, nothing happens.
void end_slurm_step();

}  // namespace weft::parallel
