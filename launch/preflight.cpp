// Each step gathers, and every rank judges what was gathered alike.
#include "launch/preflight.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cstdlib>

#include "kernels/device.h"
#include "kernels/gpu_device.h"
#include "parallel/gather.h"
#include "parallel/nccl_facts.h"
#include "parallel/nccl_hints.h"
#include "planner/problem_list.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"

namespace weft::launch {
namespace {

using parallel::EdgeRate;
using parallel::RankFacts;
using parallel::SetupStep;

constexpr double kSlow = 0.7;  // of the cluster file's rate

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

uint64_t host_memory_needed(const planner::Plan& plan, const parallel::DeviceMesh& mesh,
                            const parallel::MpiSession& session, const parallel::Binding& binding) {
  if (binding.place && binding.place->gpu)
    return 0;  // the GPU's memory is asked for when it is set up
  const size_t stage = mesh.stage_of(session.rank());
  const auto& memory = plan.predicted.rank_memory;
  return stage < memory.size() ? memory[stage].total() : 0;
}

const char* environment(const char* name) { return std::getenv(name); }

void add_nccl_facts(bool several_hosts, RankFacts& facts) {
  facts.nccl.set(parallel::nccl_version_here());
  facts.nccl_settings.set(parallel::nccl_settings(environment));
  const auto problems =
      parallel::nccl_name_problems(environment, parallel::host_networks(), several_hosts);
  facts.nccl_problem.set(fmt::format("{}", fmt::join(problems, "; ")));
}

// The same for all ranks of a host: they use each other's cards.
void hint_nccl(const parallel::Topology& topology, std::span<const RankFacts> all, int node) {
  std::vector<size_t> gpus;
  for (size_t gpu = 0; gpu < topology.gpus.size(); ++gpu)
    if (std::any_of(all.begin(), all.end(), [&](const RankFacts& facts) {
          return facts.node == node && facts.gpu.get() == topology.gpus[gpu].bus_id;
        }))
      gpus.push_back(gpu);
  const parallel::NcclHints hints =
      parallel::nccl_hints(topology, gpus, parallel::interfaces_to_choose());
  const auto hint = [](const char* name, const std::string& value) {
    if (value.empty() || std::getenv(name) != nullptr) return;
    setenv(name, value.c_str(), 0);
    spdlog::debug("NCCL is told {}={}", name, value);
  };
  hint("NCCL_IB_HCA", hints.ib_hca);
  hint("NCCL_SOCKET_IFNAME", hints.socket_ifname);
}

// What the file promises one rank between hosts, and within one: the slowest class of nodes.
double promised_gbps(const planner::ClusterSpec& cluster, bool same_host) {
  double least = 0;
  for (const planner::NodeClass& node : cluster.nodes) {
    const double here = !same_host ? node.nic_gbps : std::max(node.nvlink_gbps, node.pcie_gbps);
    if (here > 0 && (least == 0 || here < least)) least = here;
  }
  return least;
}

}  // namespace

Preflight::Preflight(RankProcess& process, std::optional<double> limit_s)
    : process_(process), steps_(process.session, process.guardian.watch(), limit_s) {}

void Preflight::versions() {
  steps_.together(SetupStep::versions, [&] {
    RankFacts mine;
    parallel::agree(process_.session, [&] {
      mine = parallel::facts_of_process(process_.session, WEFT_VERSION, process_.binding);
    });
    facts_ = parallel::gather(process_.session, mine);
    parallel::agree(process_.session, [&] {  // the same sentence everywhere: rank 0 says it
      if (leads()) planner::refuse("this job", version_problems(facts_));
    });
  });
}

void Preflight::same(const std::string& hash, const char* difference) {
  std::array<char, 64> mine{};
  WEFT_EXPECT(hash.size() == mine.size());
  std::copy(hash.begin(), hash.end(), mine.begin());
  const auto all = parallel::gather(process_.session, mine);
  parallel::agree(process_.session, [&] {
    if (all.front() != mine) throw input_error("this rank has {} than rank 0", difference);
  });
}

void Preflight::early_places() {
  steps_.together(SetupStep::places,
                  [&] { verify_binding(process_.session, process_.binding, {}); });
}

void Preflight::places(const planner::Plan& plan, bool nccl) {
  const parallel::MpiSession& session = process_.session;
  const parallel::DeviceMesh mesh = parallel::make_mesh(plan);
  steps_.together(SetupStep::places, [&] {
    verify_binding(session, process_.binding, parallel::local_groups(mesh, session));
    report(session, process_.binding);
    RankFacts mine;
    parallel::agree(session, [&] {
      mine = parallel::facts_of_process(session, WEFT_VERSION, process_.binding);
      mine.needs = host_memory_needed(plan, mesh, session, process_.binding);
      if (nccl) add_nccl_facts(several_hosts(), mine);
    });
    facts_ = parallel::gather(session, mine);
  });
  steps_.run(SetupStep::devices, [&] {
    if (!leads()) return;
    std::vector<std::string> problems = device_problems(facts_);
    for (std::string& problem : nccl_problems(facts_)) problems.push_back(std::move(problem));
    planner::refuse("this job", problems);
  });
  if (nccl && several_hosts()) hint_nccl(process_.binding.topology, facts_, session.node());
  steps_.run(SetupStep::memory, [&] {
    if (leads()) planner::refuse("this job", memory_problems(facts_));
  });
}

void Preflight::messages(const planner::Plan& plan, const Device& device,
                         const DeviceOptions& options) {
  kernels::ThreadPool pool(1);
  std::optional<kernels::GpuStream> gpu_stream;
  std::optional<parallel::PreflightOnGpu> gpu;
  if (device.gpu) {
    parallel::agree(process_.session, [&] { gpu_stream.emplace(); });
    gpu = {options.transport, device.n_sharing > 1};
  }
  kernels::Stream stream(pool, gpu_stream ? gpu_stream->get() : nullptr);
  std::optional<parallel::PreflightMessages> messages;
  steps_.together(SetupStep::groups, [&] {
    messages.emplace(process_.session, parallel::make_mesh(plan), stream, gpu);
    parallel::agree(process_.session, [] {});
  });
  steps_.together(SetupStep::messages, [&] {
    parallel::agree(process_.session, [&] { messages->check_groups(); });
    parallel::agree(process_.session, [&] { messages->check_edges(); });
  });
  steps_.together(SetupStep::bandwidth, [&] { edges_ = messages->time_edges(); });
  messages->close();
}

bool Preflight::worth_showing() const {
  return std::any_of(facts_.begin(), facts_.end(), [&](const RankFacts& facts) {
    return facts.node != 0 || !facts.gpu.get().empty();
  });
}

std::string edges_text(const std::vector<EdgeRate>& edges) {
  std::string text;
  for (const EdgeRate& edge : edges)
    text +=
        fmt::format("edge rank {} -> rank {} ({}): {:.2f} GB/s, {:.0f} us\n", edge.from, edge.to,
                    edge.same_host ? "within a host" : "between hosts", edge.gbps, edge.latency_us);
  return text;
}

std::vector<std::string> slow_edges(const std::vector<EdgeRate>& edges,
                                    const planner::ClusterSpec& cluster) {
  std::vector<std::string> slow;
  for (const EdgeRate& edge : edges) {
    const double promised = promised_gbps(cluster, edge.same_host);
    if (promised <= 0 || edge.gbps >= kSlow * promised) continue;
    slow.push_back(fmt::format(
        "edge rank {} -> rank {} reaches {:.2f} GB/s, {:.0f} % of the {:g} GB/s that cluster {} "
        "promises {}",
        edge.from, edge.to, edge.gbps, 100 * edge.gbps / promised, promised, cluster.name,
        edge.same_host ? "within a host" : "between hosts"));
  }
  return slow;
}

}  // namespace weft::launch
