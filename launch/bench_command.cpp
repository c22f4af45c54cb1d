// `weft bench`: one subcommand a kind of measurement, each in a file of its own.
#include "launch/bench_command.h"

#include <fmt/ranges.h>

#include <CLI/CLI.hpp>

#include "launch/commands.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace weft::launch {

void add_counts(CLI::App& command, const std::string& flag, std::vector<size_t>& to, size_t most,
                const std::string& what) {
  command
      .add_option_function<std::string>(
          flag,
          [flag, most, &to](const std::string& text) {
            to.clear();
            for (const std::string& one : split(text, ',')) {
              to.push_back(parse_count(one, flag, most));
              if (to.back() == 0) throw input_error("{} 0: must be at least 1", flag);
            }
          },
          what)
      ->type_name("N,…");
}

void add_bench_command(CLI::App& app) {
  CLI::App* bench = app.add_subcommand("bench", "Measure this machine");
  bench->require_subcommand(0, 1);  // none is refused below, with what there is
  add_calibrate_command(*bench);
  add_links_command(*bench);
  add_scale_command(*bench);
  add_step_command(*bench);
  add_kernels_command(*bench);
  bench->callback([bench] {
    if (!bench->get_subcommands().empty()) return;
    std::vector<std::string> names;
    for (const CLI::App* command : bench->get_subcommands([](const CLI::App*) { return true; }))
      names.push_back(command->get_name());
    throw input_error("a subcommand is needed: {}; see weft bench --help", fmt::join(names, ", "));
  });
}

}  // namespace weft::launch
