// The request turned into kinds of stage and bounds.
#include "planner/search_space.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "planner/bisect.h"
#include "planner/problem_list.h"
#include "planner/shard_shapes.h"

namespace weft::planner {
namespace {

constexpr size_t kLeastChunk = 512;
constexpr size_t kMostChunk = 8192;

size_t blocks(size_t tokens) { return (tokens + kKvBlockTokens - 1) / kKvBlockTokens; }

void append(std::vector<std::string>& to, const std::vector<std::string>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

void check(const SearchRequest& request) {
  std::vector<std::string> found = problems(request.model);
  append(found, problems(request.cluster));
  append(found, problems(request.workload));
  if (request.model.n_layers > kMostSearchLayers)
    found.push_back(fmt::format("n_layers {}: models of at most {} layers are planned on a cluster",
                                request.model.n_layers, kMostSearchLayers));
  if (request.max_stages < 1 || request.max_stages > kMostSearchStages)
    found.push_back(
        fmt::format("max_stages {} is not from 1 to {}", request.max_stages, kMostSearchStages));
  const size_t tokens = request.workload.prompt_tokens + request.workload.output_tokens;
  if (tokens > request.model.context && request.workload.prompt_tokens <= kMostTokens &&
      request.workload.output_tokens <= kMostTokens)
    found.push_back(fmt::format("{} prompt and {} output tokens are beyond the model's context {}",
                                request.workload.prompt_tokens, request.workload.output_tokens,
                                request.model.context));
  if (request.context > request.model.context)
    found.push_back(
        fmt::format("context {} is beyond the model's {}", request.context, request.model.context));
  refuse("search", found);
}

// Ranks of a group that may share the experts out: whole experts each.
std::vector<size_t> expert_shares(const SearchRequest& request, size_t tp) {
  std::vector<size_t> shares = {1};
  if (!request.expert_parallel || request.model.n_experts == 0) return shares;
  for (size_t ep = 2; ep <= tp; ++ep)
    if (tp % ep == 0 && request.model.n_experts % ep == 0) shares.push_back(ep);
  return shares;
}

// Nodes that a group of tp takes in a class; 0 where it can't be.
size_t nodes_of_group(const SearchRequest& request, const NodeClass& node, size_t tp) {
  if (tp <= node.gpus) return 1;
  const size_t n = (tp + node.gpus - 1) / node.gpus;
  return request.tp_across_nodes && tp % n == 0 && n <= node.count ? n : 0;
}

void add_kinds(const SearchRequest& request, size_t node_class, size_t tp, Space& space) {
  const size_t n = nodes_of_group(request, request.cluster.nodes[node_class], tp);
  if (n == 0 || tp > space.most_gpus) return;
  for (const size_t ep : expert_shares(request, tp))
    space.kinds.push_back({node_class, tp, ep, n, tp / n, 0, space.n_ports});
  ++space.n_ports;
}

void make_kinds(const SearchRequest& request, Space& space) {
  for (const size_t tp : legal_tp(request.model)) {
    if (!tp_problem(request.model, tp, request.invariant).empty()) continue;
    for (size_t c = 0; c < space.nodes.size(); ++c) add_kinds(request, c, tp, space);
  }
  for (Kind& kind : space.kinds) {
    if (space.widths.empty() || space.widths.back() != kind.tp) space.widths.push_back(kind.tp);
    kind.width = space.widths.size() - 1;
  }
}

std::vector<size_t> chunks_for(size_t prompt_tokens) {
  std::vector<size_t> chunks;
  for (size_t chunk = kLeastChunk; chunk <= kMostChunk; chunk *= 2) {
    chunks.push_back(chunk);
    if (chunk >= prompt_tokens) break;
  }
  return chunks;
}

}  // namespace

size_t Space::kv_floor(size_t batch, bool only_prefills) const {
  const size_t sequences = only_prefills ? 2 * prompt_blocks : batch * sequence_blocks;
  return std::max(sequences, context_blocks);
}

size_t Space::most_batch(size_t n_replicas) const {
  if (concurrency == 0) return kMostBatch;
  const double share = std::ceil(concurrency / static_cast<double>(n_replicas));
  return std::bit_ceil(static_cast<size_t>(share));
}

// Several batches are in flight where there are several sequences, or chunks of one.
size_t Space::stages_at_work(const Schedule& schedule, size_t n_replicas, size_t n_prefill,
                             size_t n_stages) const {
  if (!shares_hosts) return 1;
  const size_t of_prompt = (prompt_tokens + schedule.prefill_chunk - 1) / schedule.prefill_chunk;
  const size_t batches = std::min(schedule.batches_in_flight, std::max(schedule.batch, of_prompt));
  const size_t of_replica = std::min(batches, n_stages) + n_prefill;
  return std::min(most_node_gpus, n_replicas * of_replica);
}

Space make_space(const SearchRequest& request, const StageCosts& costs) {
  check(request);
  const Workload& workload = request.workload;
  Space space;
  space.n_layers = request.model.n_layers;
  space.most_stages = std::min(request.max_stages, 2 * space.n_layers);
  space.nodes = request.cluster.nodes;
  space.n_nodes = n_nodes(request.cluster);
  space.separate_groups = request.separate_groups;
  space.shares_hosts = costs.shares_hosts();
  for (const NodeClass& node : space.nodes)
    space.most_node_gpus = std::max(space.most_node_gpus, node.gpus);
  space.prompt_tokens = workload.prompt_tokens;
  space.most_gpus = std::min(n_gpus(request.cluster), workload.max_gpus.value_or(kMostClusterGpus));
  space.concurrency = static_cast<double>(workload.concurrency.value_or(0));
  space.most_replicas = std::min(space.most_gpus, workload.concurrency.value_or(kMostConcurrency));
  space.chunks = chunks_for(workload.prompt_tokens);
  space.sequence_blocks = blocks(workload.prompt_tokens + workload.output_tokens);
  space.prompt_blocks = blocks(workload.prompt_tokens);
  space.context_blocks = std::max(space.sequence_blocks, blocks(request.context));
  const ModelSpec& model = request.model;
  const auto prompt = static_cast<double>(workload.prompt_tokens);
  const auto output = static_cast<double>(workload.output_tokens);
  const double row = 2.0 * static_cast<double>(model.hidden);
  space.prefill_edge_bytes = prompt * row;
  space.decode_edge_bytes = output * row;
  space.handover_bytes =
      prompt * 4.0 * static_cast<double>(model.n_layers * model.n_kv_heads * model.head_dim);
  make_kinds(request, space);
  return space;
}

size_t most_replicas(const Space& space, const Layout& layout, size_t most) {
  struct Part {
    size_t node_class, gpus, n_nodes;
  };
  std::vector<Part> parts;
  size_t gpus = 0;
  for (const PlacedStage& stage : layout.stages) {
    const StageShape& shape = stage.shape;
    gpus += shape.tp;
    if (parts.size() == stage.part) parts.push_back({shape.node_class, 0, shape.n_nodes});
    parts.back().gpus += shape.tp / shape.n_nodes;
  }
  const auto fits = [&](size_t n_replicas) {
    if (n_replicas * gpus > space.most_gpus) return false;
    std::vector<size_t> taken(space.nodes.size(), 0);
    for (const Part& part : parts)
      taken[part.node_class] +=
          part.n_nodes * space.nodes_taken(part.node_class, part.gpus, n_replicas);
    for (size_t c = 0; c < taken.size(); ++c)
      if (taken[c] > space.nodes[c].count) return false;
    return true;
  };
  return last_that(0, std::min(most, space.most_gpus / gpus), fits);
}

}  // namespace weft::planner
