// Parses the command line and turns every failure into one line on stderr and a status.
#include "launch/command_line.h"

#include <CLI/CLI.hpp>
#include <cstdio>
#include <cstdlib>

#include "launch/commands.h"
#include "launch/failures.h"
#include "parallel/mpi_session.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/text.h"

namespace weft::launch {
namespace {

const CLI::App& innermost(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  return chosen.empty() ? app : innermost(*chosen.front());
}

std::vector<std::string> names_in(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::Option* option : app.get_options())
    for (const std::string& name : option->get_lnames()) names.push_back("--" + name);
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; })) {
    const bool is_group = command->get_name().empty();  // of options, one of which is needed
    const std::vector<std::string> inner =
        is_group ? names_in(*command) : std::vector<std::string>();
    names.insert(names.end(), inner.begin(), inner.end());
    if (!is_group) names.push_back(command->get_name());
  }
  return names;
}

// Empty where CLI11 placed everything; else "unknown --laoyut (did you mean "--layout"?)" for what
// CLI11 could not place.
std::string unknown_argument(const CLI::App& app) {
  const CLI::App& command = innermost(app);
  std::vector<std::string> extras = command.remaining();  // what follows "--" went to the outer one
  if (extras.empty()) extras = app.remaining(true);
  std::erase(extras, "--");
  for (const std::string& extra : extras) {
    const std::string name = extra.substr(0, extra.find('='));
    const std::vector<std::string> names = names_in(command);
    const std::vector<std::string_view> views(names.begin(), names.end());
    const char* kind = name.starts_with("-") ? "flag" : "argument";
    const std::string place = &command == &app ? "weft" : "weft " + command.get_name();
    return fmt::format("unknown {} \"{}\"{}; see {} --help", kind, name, did_you_mean(name, views),
                       place);
  }
  return {};
}

// Whether the ranks of a job work on this command together.
bool takes_all_ranks(const CLI::App& app) {
  const auto chosen = app.get_subcommands();
  const std::string name = chosen.empty() ? "" : chosen.front()->get_name();
  if (name == "run" || name == "bench" || name == "profile") return true;
  const CLI::Option* preflight = innermost(app).get_option_no_throw("--preflight");
  return preflight != nullptr && preflight->count() > 0;
}

// Under mpirun or srun every rank of such a command finds the same mistake in its flags; rank 0
// says it, and none leaves before.
bool started_with_others(const CLI::App& app) {
  int initialized = 0;
  parallel::check(MPI_Initialized(&initialized), "MPI_Initialized");
  return takes_all_ranks(app) && parallel::started_by_launcher() && initialized == 0;
}

int refuse(const CLI::App& app, const std::string& what, int status) {
  if (!started_with_others(app)) {
    fmt::print(stderr, "weft: {}\n", what);
    return status;
  }
  parallel::MpiSession session(nullptr, nullptr);
  try {  // meets the others at their first agreement, where only this rank was given such flags
    parallel::agree(session, [&] { throw Error(what, status); });
  } catch (const parallel::AgreedError& error) {
    say_and_close(session, error.what());
  }
  return status;
}

int parse_and_run(CLI::App& app, int argc, char** argv) {
  try {
    app.parse(argc, argv);
    if (!app.get_subcommands().empty()) return 0;
    return refuse(app,
                  "a subcommand is needed: plan, run, launch, check, topo, bench, profile or "
                  "synth; see weft --help",
                  2);
  } catch (const CLI::Success& wanted) {  // --help, --version
    return app.exit(wanted);
  } catch (const CLI::ParseError& bad) {
    const std::string unknown = unknown_argument(app);  // before what is missing for want of it
    return refuse(app, unknown.empty() ? bad.what() : unknown, 2);
  }
}

}  // namespace

bool works_here() {
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"})
    if (const char* rank = std::getenv(name)) return std::string_view(rank) == "0";
  return true;
}

int run_command_line(int argc, char** argv) {
  CLI::App app("Plans, launches and runs large-language-model inference over many GPUs.", "weft");
  app.set_version_flag("--version", "weft " WEFT_VERSION);
  app.require_subcommand(0, 1);  // none is refused below, after unknown words have been named
  start_logging(-1, false);
  add_plan_command(app);
  add_run_command(app);
  add_launch_command(app);
  add_check_command(app);
  add_synth_command(app);
  add_topo_command(app);
  add_bench_command(app);
  add_profile_command(app);
  try {
    const int status = parse_and_run(app, argc, argv);
    if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return status;
    throw run_error("cannot write to standard output");
  } catch (const AlreadySaid& error) {
    return error.status();
  } catch (const Error& error) {
    return refuse(app, error.what(), error.status());
  } catch (const std::exception& error) {
    fmt::print(stderr, "weft: {}\n", error.what());
    return 1;
  }
}

}  // namespace weft::launch
