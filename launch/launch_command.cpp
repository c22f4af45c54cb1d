// `weft launch`: prints how to start a plan's job, so that it can be read, kept and sent in.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <filesystem>
#include <memory>

#include "launch/commands.h"
#include "launch/config_folder.h"
#include "launch/flag_words.h"
#include "launch/launch_script.h"
#include "launch/network_names.h"
#include "launch/problems.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/text.h"

namespace weft::launch {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMostHostfileBytes = size_t{16} << 20;
constexpr size_t kMostNodes = 100'000;

struct LaunchOptions {
  std::string plan;
  std::string launcher;
  std::string hostfile;
  std::optional<size_t> nodes;
  std::optional<size_t> gpus_per_node;
  std::optional<size_t> cores;
  size_t mpi_version = 4;
  std::vector<std::string> nics;
  std::string time;
  std::string partition;
  std::string binary;
  std::string output;
  std::vector<std::string> command;
};

// Commands that all ranks of a job run together.
constexpr std::string_view kCommands[] = {"run", "check"};
// A plan fixes what these would choose.
constexpr std::string_view kLayoutFlags[] = {"--layout", "--tp", "--pp", "--gpus-per-node"};

std::string absolute(const std::string& path) {
  std::error_code ignored;
  return fs::absolute(path, ignored).lexically_normal().string();
}

std::string this_binary() {
  std::error_code failed;
  const fs::path path = fs::read_symlink("/proc/self/exe", failed);
  return failed ? "weft" : path.string();
}

// What follows "--", with this plan, by names that hold in any folder and on any node.
std::vector<std::string> job_command(const LaunchOptions& options) {
  std::vector<std::string> given = options.command;
  if (given.empty())
    throw input_error("nothing to start: end with -- run --model FOLDER and a prompt");
  choose("weft launch … --", given.front(), kCommands);
  std::vector<std::string> words = {options.binary.empty() ? this_binary() : options.binary};
  words.insert(words.end(), given.begin(), given.end());
  if (given.front() == "check" &&
      std::find(given.begin(), given.end(), "--preflight") == given.end())
    words.emplace_back("--preflight");
  for (size_t i = 0; i < given.size(); ++i) {
    const std::string flag = given[i].substr(0, given[i].find('='));
    if (std::find(std::begin(kLayoutFlags), std::end(kLayoutFlags), flag) != std::end(kLayoutFlags))
      throw input_error("{} chooses a layout, and the plan {} has one: leave it out", flag,
                        options.plan);
    if (flag == "--plan")
      throw input_error("--plan is given to weft launch, before --, and not to {} again",
                        given.front());
  }
  words.emplace_back("--plan");
  words.push_back(absolute(options.plan));
  return words;
}

// A plan of CPU ranks asks Slurm for no GPUs; of a cluster that isn't shipped nothing is known.
size_t gpus_of(const LaunchOptions& options, const planner::Plan& plan) {
  if (options.gpus_per_node) return *options.gpus_per_node;
  const std::optional<planner::ClusterSpec> cluster = shipped_cluster(plan.cluster);
  const bool on_gpus = cluster && std::any_of(cluster->nodes.begin(), cluster->nodes.end(),
                                              [](const auto& node) { return node.gpu != "cpu"; });
  if (on_gpus) return ranks_on_nodes(plan, options.nodes).front();
  return 0;
}

void warn_of_no_gpus(const LaunchOptions& options, const planner::Plan& plan,
                     const LaunchRequest& request) {
  if (request.launcher == Launcher::mpirun || options.gpus_per_node ||
      shipped_cluster(plan.cluster))
    return;
  spdlog::warn(
      "Slurm is asked for no GPUs: the plan names no shipped cluster; --gpus-per-node N asks for "
      "them");
}

LaunchRequest make_request(const LaunchOptions& options, const planner::Plan& plan) {
  LaunchRequest request;
  Problems problems;
  problems.passes([&] {
    request.launcher =
        static_cast<Launcher>(choose("--launcher", options.launcher, kLauncherNames));
  });
  if (request.launcher != Launcher::mpirun && !options.hostfile.empty())
    problems.add("--hostfile is mpirun's: Slurm chooses the hosts (--nodes N)");
  if (request.launcher != Launcher::sbatch && !(options.time + options.partition).empty())
    problems.add("--time and --partition are written into sbatch's script alone");
  if (!options.hostfile.empty() && options.nodes)
    problems.add("--hostfile and --nodes: the file says how many there are");
  if (!options.hostfile.empty())
    problems.passes([&] {
      request.hosts =
          parse_hostfile(read_text(options.hostfile, kMostHostfileBytes), options.hostfile);
    });
  problems.passes([&] { sort_networks(options.nics, request.nics, request.cards); });
  problems.passes([&] { request.command = job_command(options); });
  problems.passes([&] { request.gpus_per_node = gpus_of(options, plan); });
  problems.refuse("can't launch");
  request.hostfile = options.hostfile;
  request.nodes = options.nodes;
  request.cores = options.cores;
  request.mpi_version = options.mpi_version;
  request.time = options.time;
  request.partition = options.partition;
  return request;
}

void launch(const LaunchOptions& options) {
  const planner::Plan plan = planner::read_plan_yaml(options.plan);
  if (plan.replicas.empty() || plan.replicas.front().stages.empty())
    throw input_error("plan {} has no stages", options.plan);
  const LaunchRequest request = make_request(options, plan);
  const std::string text = launch_text(plan, request);
  warn_of_no_gpus(options, plan, request);
  const size_t n_replicas = plan.replicas.front().count;
  if (n_replicas > 1 && request.launcher != Launcher::sbatch)
    spdlog::info("the plan has {} replicas: start this {} times, each on nodes of its own",
                 n_replicas, n_replicas);
  if (options.output.empty())
    fmt::print("{}", text);
  else
    write_file(options.output, text);
}

void add_launcher_options(CLI::App& command, LaunchOptions& o) {
  command.add_option("--plan", o.plan, "The plan to start")->required()->type_name("FILE");
  command.add_option("--launcher", o.launcher, "mpirun, srun or sbatch")->required();
  command
      .add_option("--hostfile", o.hostfile,
                  "mpirun: \"name slots=N\" a line; the plan's nodes take them in order")
      ->type_name("FILE");
  command
      .add_option("--nodes", o.nodes,
                  "Nodes of the allocation (default: the plan's; one alone is this host)")
      ->check(CLI::Range(size_t{1}, kMostNodes))
      ->type_name("N");
  command
      .add_option("--gpus-per-node", o.gpus_per_node,
                  "GPUs to ask Slurm for (default: one a rank where the plan's cluster has GPUs)")
      ->check(CLI::Range(0, 1024))
      ->type_name("N");
  command
      .add_option("--cores", o.cores, "Cores of each rank to ask Slurm for (default: the node's)")
      ->check(CLI::Range(1, 4096))
      ->type_name("N");
  command
      .add_option("--open-mpi", o.mpi_version,
                  "Major version of Open MPI, whose options differ: 4 or 5 (default 4)")
      ->check(CLI::Range(4, 5));
}

void add_launch_options(CLI::App& command, LaunchOptions& o) {
  add_launcher_options(command, o);
  command
      .add_option("--nic", o.nics,
                  "Networks to use: interfaces (eth0), RDMA devices (mlx5_0) of this host, or "
                  "10.0.0.0/24")
      ->delimiter(',')
      ->allow_extra_args(false)  // or it would take "--" and what follows
      ->type_name("NAMES");
  command.add_option("--time", o.time, "sbatch: limit of the job, as Slurm writes it: 1:00:00");
  command.add_option("--partition", o.partition, "sbatch: Slurm's partition");
  command.add_option("--weft", o.binary, "weft as the nodes find it (default: this binary's path)")
      ->type_name("FILE");
  command.add_option("-o,--output", o.output, "Write to this file")->type_name("FILE");
  command.add_option("command", o.command, "After --: run or check, with its flags")->expected(-1);
}

}  // namespace

void add_launch_command(CLI::App& app) {
  CLI::App* command =
      app.add_subcommand("launch", "Print the command or batch script that starts a plan's job");
  const auto options =
      std::make_shared<LaunchOptions>();  // shared with the parser until it has run
  add_launch_options(*command, *options);
  command->callback([options] {
    if (works_here()) launch(*options);
  });
}

}  // namespace weft::launch
