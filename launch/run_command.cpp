// `weft run`: one job, under mpirun or alone. Errors that all ranks agree on are said once by rank
// 0; any other ends the whole job with the rank's name before it.
#include <CLI/CLI.hpp>
#include <memory>

#include "launch/commands.h"
#include "launch/failures.h"
#include "launch/job.h"
#include "parallel/binding.h"
#include "parallel/guardian.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"

namespace weft::launch {
namespace {

// The ranks of a host find the same: one says it.
void report(const parallel::MpiSession& session, const parallel::Binding& binding) {
  for (const std::string& warning : binding.warnings)
    spdlog::log(session.node_rank() == 0 ? spdlog::level::warn : spdlog::level::debug, "{}",
                warning);
  if (binding.kept)
    spdlog::debug("left on CPUs {}, where it was started", binding.before.text());
  else if (binding.place && binding.place->binds)
    spdlog::debug("on CPUs {}: {}", binding.place->cpus.text(), binding.place->why);
}

void run(const RunOptions& options) {
  // Both before MPI, which starts threads; the guardian is not bound.
  parallel::Guardian guardian =
      options.guardian ? parallel::Guardian::start() : parallel::Guardian();
  parallel::Binding binding = parallel::bind_early({.bind = options.bind,
                                                    .use_gpus = may_use_gpus(options.device),
                                                    .share_gpus = options.device.share_gpus});
  parallel::MpiSession session(nullptr, nullptr);
  start_logging(session.size() > 1 ? session.rank() : -1, options.verbose);
  try {
    verify_binding(session, binding, {});
    report(session, binding);
    const Device device = choose_device(session, binding, options.device);
    guardian.join(session, device.name);
    Job job(session, guardian, options, device);
    job.run();
  } catch (const parallel::AgreedError& error) {
    guardian.leave();
    say_and_close(session, error.what());
    throw AlreadySaid(error.status());
  } catch (const Error& error) {
    end_job(session, guardian, error.what(), error.status());
  } catch (const std::exception& error) {
    end_job(session, guardian, error.what(), 1);
  }
  guardian.leave();
  session.close();
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
