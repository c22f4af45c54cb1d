// The command line: `weft SUBCOMMAND …`, one file a subcommand.
#pragma once

namespace weft::launch {

// Parses, runs, prints an error as "weft: …" on stderr. Returns the process's exit status: 0 done,
// 2 bad input, 1 any other failure.
int run_command_line(int argc, char** argv);

}  // namespace weft::launch
