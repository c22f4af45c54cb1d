// `weft run`: one job, under mpirun or alone. Errors that all ranks agree on are said once by rank
// 0; any other ends the whole job with the rank's name before it.
#include <CLI/CLI.hpp>
#include <memory>

#include "launch/commands.h"
#include "launch/failures.h"
#include "launch/job.h"
#include "parallel/guardian.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"

namespace weft::launch {
namespace {

void run(const RunOptions& options) {
  // Before MPI, which starts threads.
  parallel::Guardian guardian =
      options.guardian ? parallel::Guardian::start() : parallel::Guardian();
  parallel::MpiSession session(nullptr, nullptr);
  start_logging(session.size() > 1 ? session.rank() : -1, options.verbose);
  try {
    guardian.join(session, "CPU");
    Job job(session, guardian, options);
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
