// `weft topo`: a host's GPUs, PCI roots, NUMA nodes, cores and network cards, and where its ranks
// would sit.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <memory>

#include "launch/commands.h"
#include "launch/failures.h"
#include "launch/topo_cluster.h"
#include "launch/topo_drawing.h"
#include "launch/topo_report.h"
#include "parallel/nccl_hints.h"
#include "parallel/placement.h"
#include "parallel/topology_sources.h"
#include "parallel/visible_devices.h"
#include "planner/problem_list.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"

namespace weft::launch {
namespace {

struct TopoOptions {
  std::string from;
  size_t ranks = 0;  // 0: none are placed
  size_t tp = 0;     // 0: one group of all
  std::optional<std::string> visible;
  bool cpu = false;
  bool share_gpus = false;
  bool json = false;
  std::string dot;
  std::string svg;
  bool cluster = false;
  std::string output;  // of the cluster file; empty: standard output
};

constexpr size_t kMostRanks = 1024;

parallel::Topology topology_of(const TopoOptions& options) {
  if (!options.from.empty()) return parallel::read_topology(options.from);
  return parallel::live_topology(parallel::Devices::yes);
}

// A file is of another machine, so this one's variable says nothing of it.
parallel::VisibleDevices visible_in(const parallel::Topology& topology,
                                    const TopoOptions& options) {
  const char* value = std::getenv("CUDA_VISIBLE_DEVICES");
  std::optional<std::string> list = options.visible;
  if (!list && options.from.empty() && value != nullptr) list = value;
  const char* order = std::getenv("CUDA_DEVICE_ORDER");
  return visible_devices(topology, list, order != nullptr ? order : "");
}

// Groups of tp ranks each; the last may have fewer.
std::vector<size_t> groups_of(const TopoOptions& options) {
  std::vector<size_t> groups;
  if (options.tp == 0) return groups;
  for (size_t first = 0; first < options.ranks; first += options.tp)
    groups.push_back(std::min(options.tp, options.ranks - first));
  return groups;
}

parallel::Placement place_ranks(const parallel::Topology& topology, const TopoOptions& options) {
  if (options.ranks == 0) return {};
  parallel::VisibleDevices visible = visible_in(topology, options);
  parallel::PlacementRequest request;
  request.n_ranks = options.ranks;
  request.use_gpus = !options.cpu;
  request.share_gpus = options.share_gpus;
  request.groups = groups_of(options);
  request.visible_gpus = std::move(visible.gpus);
  parallel::Placement placement = place(topology, request);
  placement.doubts.insert(placement.doubts.begin(), visible.doubts.begin(), visible.doubts.end());
  return placement;
}

// What a launch script could set; a file's interfaces can't be asked whether they are up.
std::string hint_lines(const parallel::Topology& topology, const parallel::Placement& placement,
                       bool live) {
  std::vector<size_t> gpus;
  for (const parallel::RankPlace& place : placement.ranks)
    if (place.gpu) gpus.push_back(*place.gpu);
  if (gpus.empty()) return {};
  const parallel::NcclHints hints = nccl_hints(
      topology, gpus, live ? parallel::interfaces_to_choose() : std::vector<std::string>());
  std::string text;
  if (!hints.ib_hca.empty()) text += fmt::format("hint: NCCL_IB_HCA={}\n", hints.ib_hca);
  if (!hints.socket_ifname.empty())
    text += fmt::format("hint: NCCL_SOCKET_IFNAME={}\n", hints.socket_ifname);
  return text;
}

void run(const TopoOptions& options) {
  for (const std::string& path : {options.dot, options.svg})
    if (!path.empty()) check_writable(path);
  const parallel::Topology topology = topology_of(options);
  const parallel::Placement placement = place_ranks(topology, options);
  if (!options.dot.empty()) write_file(options.dot, topology_dot(topology, placement));
  if (!options.svg.empty()) write_file(options.svg, topology_svg(topology, placement));
  const bool placed = options.ranks > 0;
  std::string text = options.json ? topology_json(topology, placed ? &placement : nullptr)
                                  : topology_text(topology);
  if (!options.json && placed)
    text += fmt::format("\n{} ranks\n{}{}", options.ranks, placement_text(topology, placement),
                        hint_lines(topology, placement, options.from.empty()));
  fmt::print("{}", text);
}

void print_cluster(const TopoOptions& options, const GatheredFacts& facts) {
  for (const std::string& doubt : facts.doubts) fmt::print(stderr, "doubt: {}\n", doubt);
  const planner::ClusterSpec cluster = make_cluster("found", facts.nodes);
  planner::refuse("the nodes found", planner::problems(cluster));
  const std::string yaml = to_yaml(cluster);
  if (options.output.empty())
    fmt::print("{}", yaml);
  else
    write_file(options.output, yaml);
}

// Under mpirun or srun every node tells its facts, and rank 0 writes them; alone, this node or the
// file. With a file there is nothing to gather.
void run_cluster(const TopoOptions& options) {
  if (!options.from.empty() || !parallel::started_by_launcher()) {
    if (!works_here()) return;
    if (!options.output.empty()) check_writable(options.output);
    const NodeFacts facts = node_facts(topology_of(options));
    return print_cluster(options, {{facts.node}, facts.doubts});
  }
  parallel::MpiSession session(nullptr, nullptr);
  const bool writes = session.rank() == 0;
  try {
    NodeFacts mine;
    parallel::agree(session, [&] {
      if (writes && !options.output.empty()) check_writable(options.output);
      mine = node_facts(topology_of(options));
    });
    const GatheredFacts facts = gather_facts(session, mine);
    parallel::agree(session, [&] {
      if (writes) print_cluster(options, facts);
    });
  } catch (const parallel::AgreedError& error) {
    say_and_close(session, error.what());
    throw AlreadySaid(error.status());
  }
  session.close();
}

}  // namespace

void add_topo_command(CLI::App& app) {
  CLI::App* command = app.add_subcommand(
      "topo", "Show a host's GPUs, PCI roots, NUMA nodes and cores, and where ranks would sit");
  const auto options = std::make_shared<TopoOptions>();  // shared with the parser until it has run
  command
      ->add_option("--from", options->from, "An hwloc or NCCL topology XML instead of this machine")
      ->type_name("FILE");
  auto* ranks = command->add_option("--ranks", options->ranks, "Place this many ranks on the host")
                    ->check(CLI::Range(size_t{1}, kMostRanks))
                    ->type_name("N");
  command->add_option("--tp", options->tp, "Ranks of a tensor-parallel group (default: all)")
      ->check(CLI::Range(size_t{1}, kMostRanks))
      ->needs(ranks)
      ->type_name("N");
  command
      ->add_option("--visible", options->visible,
                   "GPUs to take, as in CUDA_VISIBLE_DEVICES (default: that variable, here)")
      ->needs(ranks)
      ->type_name("LIST");
  command->add_flag("--cpu", options->cpu, "Place ranks that compute on CPUs")->needs(ranks);
  command->add_flag("--share-gpus", options->share_gpus, "More ranks than GPUs may share them")
      ->needs(ranks);
  command->add_flag("--json", options->json, "One JSON object on standard output");
  command->add_option("--dot", options->dot, "Write a Graphviz drawing")->type_name("FILE");
  command->add_option("--svg", options->svg, "Write an SVG drawing")->type_name("FILE");
  auto* cluster = command->add_flag(
      "--cluster", options->cluster,
      "Write the nodes' facts as a cluster file for weft plan; under mpirun or srun of all nodes");
  cluster->excludes(ranks);
  command->add_option("-o,--output", options->output, "Where the cluster file goes")
      ->needs(cluster)
      ->type_name("FILE");
  command->callback([options] {
    if (options->cluster) return run_cluster(*options);
    if (works_here()) run(*options);
  });
}

}  // namespace weft::launch
