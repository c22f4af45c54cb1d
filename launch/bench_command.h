// The subcommands of `weft bench`: each adds itself, and runs when it is the one that was given.
#pragma once

namespace CLI {
class App;
}

namespace weft::launch {

void add_calibrate_command(CLI::App& bench);
void add_links_command(CLI::App& bench);
void add_scale_command(CLI::App& bench);
void add_step_command(CLI::App& bench);

}  // namespace weft::launch
