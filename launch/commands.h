// The subcommands: each adds itself to the application, and runs when it is the one that was given.
#pragma once

namespace CLI {
class App;
}

namespace weft::launch {

// Commands of one process: under mpirun rank 0 does the work, and the others end at once.
bool works_here();

void add_plan_command(CLI::App& app);
void add_run_command(CLI::App& app);
void add_launch_command(CLI::App& app);
void add_check_command(CLI::App& app);
void add_synth_command(CLI::App& app);
void add_topo_command(CLI::App& app);
void add_bench_command(CLI::App& app);
void add_profile_command(CLI::App& app);

}  // namespace weft::launch
