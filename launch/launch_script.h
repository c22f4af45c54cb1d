// A plan and a command as the exact command line, or batch script, that starts the job. Pure: no
// machine is looked at.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/hostfile.h"
#include "planner/plan.h"

namespace weft::launch {

enum class Launcher { mpirun, srun, sbatch };
inline constexpr std::string_view kLauncherNames[] = {"mpirun", "srun", "sbatch"};

struct LaunchRequest {
  Launcher launcher = Launcher::mpirun;
  size_t mpi_version = 4;         // of Open MPI: 4 (4.1) or 5; their options differ
  std::string hostfile;           // mpirun; as it was named
  std::vector<HostSlots> hosts;   // what it holds
  std::optional<size_t> nodes;    // none: the plan's
  size_t gpus_per_node = 0;       // asked of Slurm
  std::optional<size_t> cores;    // of each rank, asked of Slurm
  std::vector<std::string> nics;  // interfaces, or networks as a.b.c.d/n, for MPI over TCP and NCCL
  std::vector<std::string> cards;  // RDMA devices
  std::string time;                // sbatch: a limit, as Slurm writes it
  std::string partition;
  std::vector<std::string> command;  // the ranks' program and its arguments
};

// Ranks on each node, in rank order: the plan's own, or `nodes` of equally many.
std::vector<size_t> ranks_on_nodes(const planner::Plan& plan, std::optional<size_t> nodes);

// Ends with a newline. Throws Error: fewer hosts or slots than the plan needs, nodes that don't
// share the ranks out evenly where the launcher must have it so.
std::string launch_text(const planner::Plan& plan, const LaunchRequest& request);

// As one word for a POSIX shell.
std::string shell_word(const std::string& text);

}  // namespace weft::launch
