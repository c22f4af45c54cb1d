// The dispatch of `weft bench`.
#include "launch/bench_command.h"

#include <CLI/CLI.hpp>

#include "launch/commands.h"

namespace weft::launch {

void add_bench_command(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Measure this machine beside its limits");
  bench->require_subcommand(1);
  add_bench_step(*bench);
}

}  // namespace weft::launch
