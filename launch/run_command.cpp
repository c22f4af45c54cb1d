// `weft run`: one job, under mpirun or srun or alone.
#include <CLI/CLI.hpp>
#include <memory>

#include "launch/commands.h"
#include "launch/job.h"
#include "launch/rank_process.h"

namespace weft::launch {
namespace {

void run(const RunOptions& options) {
  const RankOptions rank{options.guardian,
                         {.bind = options.bind,
                          .use_gpus = may_use_gpus(options.device),
                          .share_gpus = options.device.share_gpus},
                         options.verbose};
  as_rank(rank, [&](RankProcess& process) { Job(process, options).run(); });
}

}  // namespace

void add_run_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("run", "Run prompts through a model, alone or under mpirun");
  const auto options = std::make_shared<RunOptions>();  // shared with the parser until it has run
  add_run_options(*command, *options);
  command->callback([options] { run(*options); });
}

}  // namespace weft::launch
