// Proves that a job can run before it does, in named steps that all ranks take together. The quick
// part is the beginning of every run; the full part also sets up every group, passes messages, and
// times every edge.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/device_choice.h"
#include "launch/rank_process.h"
#include "parallel/preflight_messages.h"
#include "parallel/rank_facts.h"
#include "parallel/setup_steps.h"
#include "planner/cluster_spec.h"
#include "planner/plan.h"

namespace weft::launch {

enum class PreflightLevel { quick, full };
inline constexpr std::string_view kPreflightNames[] = {"quick", "full"};

// All functions are collectives of all ranks and throw AgreedError.
class Preflight {
 public:
  // limit_s: of every step, in place of its own.
  Preflight(RankProcess& process, std::optional<double> limit_s);

  // The same weft and MPI on every rank.
  void versions();
  // This rank's part of a step, which does not communicate.
  void step(parallel::SetupStep step, const std::function<void()>& mine) { steps_.run(step, mine); }
  // All ranks must have been given the same; where they have not, all say so alike. `hash` is 64
  // digits.
  void same(const std::string& hash, const char* difference);
  // Places the ranks of each host before there is a plan, so that its memory is known: by what MPI
  // found, without groups.
  void early_places();
  // Binds ranks by the plan's groups, then looks at what each has got: one GPU a rank, memory
  // enough on every host, and with nccl the same NCCL everywhere; over several hosts NCCL is then
  // told which network fits, where the user has not.
  void places(const planner::Plan& plan, bool nccl);
  // Groups, messages, bandwidth, in the memory of what the ranks run on (a GPU is current then). On
  // rank 0 edges() then holds what was measured.
  void messages(const planner::Plan& plan, const Device& device, const DeviceOptions& options);

  const std::vector<parallel::RankFacts>& facts() const { return facts_; }  // by rank
  const std::vector<parallel::EdgeRate>& edges() const { return edges_; }
  // True where there is a choice to be seen: several hosts, or GPUs.
  bool worth_showing() const;

 private:
  bool leads() const { return process_.session.rank() == 0; }
  bool several_hosts() const { return process_.session.node_size() < process_.session.size(); }

  RankProcess& process_;
  parallel::SetupSteps steps_;
  std::vector<parallel::RankFacts> facts_;
  std::vector<parallel::EdgeRate> edges_;
};

// "edge rank 0 -> rank 2 (between hosts): 1.18 GB/s, 35 us", a line each.
std::string edges_text(const std::vector<parallel::EdgeRate>& edges);
// Edges that reach less than 70 % of what the cluster's file promises, a sentence each.
std::vector<std::string> slow_edges(const std::vector<parallel::EdgeRate>& edges,
                                    const planner::ClusterSpec& cluster);

}  // namespace weft::launch
