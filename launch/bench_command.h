// The subcommands of `weft bench`: each adds itself, and runs when it is the one that was given.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace CLI {
class App;
}

namespace weft::launch {

void add_calibrate_command(CLI::App& bench);
void add_links_command(CLI::App& bench);
void add_scale_command(CLI::App& bench);
void add_step_command(CLI::App& bench);
void add_kernels_command(CLI::App& bench);

// A flag of numbers, "1,8,32": each at least 1 and at most `most`.
void add_counts(CLI::App& command, const std::string& flag, std::vector<size_t>& to, size_t most,
                const std::string& what);

}  // namespace weft::launch
