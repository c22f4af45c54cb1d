// `weft bench`: one subcommand a kind of measurement, each in a file of its own.
#include "launch/bench_command.h"

#include <CLI/CLI.hpp>

#include "launch/commands.h"

namespace weft::launch {

void add_bench_command(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Measure this machine");
  bench->require_subcommand(1);
  add_step_command(*bench);
}

}  // namespace weft::launch
