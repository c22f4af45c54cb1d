// Every layout and schedule of the search's domain, one by one: the oracle of its property test. It
// shares no code with the search but the types.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <map>
#include <vector>

#include "planner/search.h"
#include "planner/shard_shapes.h"

namespace weft::planner {

class BruteForce {
 public:
  BruteForce(const SearchRequest& request, const StageCosts& costs, const ServingModel& serving)
      : r_(request), costs_(costs), serving_(serving) {
    for (size_t chunk = 512; chunk <= 8192; chunk *= 2) {
      chunks_.push_back(chunk);
      if (chunk >= r_.workload.prompt_tokens) break;
    }
    most_gpus_ = n_gpus(r_.cluster);
    if (r_.workload.max_gpus) most_gpus_ = std::min(most_gpus_, *r_.workload.max_gpus);
  }

  // {value, GPUs, traffic}, or for the objective gpus {GPUs, latency, traffic}; infinity where no
  // layout meets the limits.
  std::array<double, 3> best() {
    best_.fill(std::numeric_limits<double>::infinity());
    place({}, 0, Role::both);
    if (r_.separate_groups) place({}, 0, Role::prefill);
    return best_;
  }
  size_t n_tried() const { return n_tried_; }

 private:
  void place(std::vector<PlacedStage> stages, size_t layer, Role role) {
    const size_t n_layers = r_.model.n_layers;
    if (layer == n_layers && role != Role::prefill) return try_all(stages);
    if (layer == n_layers) return place(std::move(stages), 0, Role::decode);
    if (stages.size() == r_.max_stages) return;
    for (size_t c = 0; c < r_.cluster.nodes.size(); ++c)
      for (const size_t tp : legal_tp(r_.model))
        for (size_t ep = 1; ep <= tp; ++ep)
          for (size_t n = 1; layer + n <= n_layers; ++n)
            for (const bool same_node : {true, false}) {
              PlacedStage stage;
              stage.role = role;
              stage.layers = {layer, layer + n};
              stage.shape = {n, layer == 0, layer + n == n_layers, tp, ep, c, 1};
              if (!can_be(stage.shape) || !put(stages, stage, same_node)) continue;
              auto more = stages;
              more.push_back(stage);
              place(std::move(more), layer + n, role);
            }
  }

  bool can_be(StageShape& shape) const {
    const NodeClass& node = r_.cluster.nodes[shape.node_class];
    if (!tp_problem(r_.model, shape.tp, r_.invariant).empty()) return false;
    if (shape.tp % shape.ep != 0) return false;
    if (shape.ep > 1 &&
        (!r_.expert_parallel || r_.model.n_experts % shape.ep != 0 || r_.model.n_experts == 0))
      return false;
    if (shape.tp <= node.gpus) return true;
    shape.n_nodes = (shape.tp + node.gpus - 1) / node.gpus;
    return r_.tp_across_nodes && shape.tp % shape.n_nodes == 0;
  }

  bool put(const std::vector<PlacedStage>& stages, PlacedStage& stage, bool same_node) const {
    if (stages.empty()) return !same_node;
    const PlacedStage& before = stages.back();
    stage.part = before.part + (same_node ? 0 : 1);
    if (!same_node) return true;
    if (before.shape.node_class != stage.shape.node_class) return false;
    if (before.shape.n_nodes > 1 || stage.shape.n_nodes > 1) return false;
    size_t used = stage.shape.tp;
    for (const PlacedStage& other : stages)
      if (other.part == stage.part) used += other.shape.tp;
    return used <= r_.cluster.nodes[stage.shape.node_class].gpus;
  }

  bool has_nodes(const std::vector<PlacedStage>& stages, size_t n_replicas) const {
    std::map<size_t, size_t> gpus_of_part;
    for (const PlacedStage& stage : stages)
      gpus_of_part[stage.part] += stage.shape.tp / stage.shape.n_nodes;
    std::vector<size_t> taken(r_.cluster.nodes.size(), 0);
    size_t part = std::numeric_limits<size_t>::max();
    for (const PlacedStage& stage : stages) {
      if (stage.part == part) continue;
      part = stage.part;
      const NodeClass& node = r_.cluster.nodes[stage.shape.node_class];
      const size_t copies = node.gpus / gpus_of_part[part];
      const size_t nodes = n_replicas / copies + (n_replicas % copies != 0);
      taken[stage.shape.node_class] += nodes * stage.shape.n_nodes;
    }
    for (size_t c = 0; c < taken.size(); ++c)
      if (taken[c] > r_.cluster.nodes[c].count) return false;
    return true;
  }

  void try_all(const std::vector<PlacedStage>& stages) {
    size_t gpus = 0, n_decode = 0;
    for (const PlacedStage& stage : stages) {
      gpus += stage.shape.tp;
      n_decode += stage.role != Role::prefill;
    }
    if (gpus > most_gpus_ || !has_nodes(stages, 1)) return;
    for (size_t batch = 1; batch <= most_batch(1); batch *= 2) {
      if (!fits(stages, {batch, 1, 512}, true)) break;
      for (size_t m = 1; m <= std::min(2 * n_decode, batch); ++m)
        for (const size_t chunk : chunks_) try_schedule(stages, gpus, {batch, m, chunk});
    }
  }

  size_t most_batch(size_t n_replicas) const {
    if (!r_.workload.concurrency) return size_t{1} << 20;
    const size_t share = (*r_.workload.concurrency + n_replicas - 1) / n_replicas;
    size_t batch = 1;
    while (batch < share) batch *= 2;
    return batch;
  }

  bool fits(const std::vector<PlacedStage>& stages, const Schedule& schedule,
            bool only_kv = false) const {
    const size_t prompt = (r_.workload.prompt_tokens + 63) / 64;
    const size_t both = (r_.workload.prompt_tokens + r_.workload.output_tokens + 63) / 64;
    const size_t context = (r_.context + 63) / 64;
    for (const PlacedStage& stage : stages) {
      size_t blocks = stage.role == Role::prefill ? 2 * prompt : schedule.batch * both;
      blocks = std::max(std::max(blocks, both), context);
      const size_t fixed = only_kv ? 0 : costs_.fixed_bytes(stage.shape, schedule);
      const size_t bytes = fixed + blocks * costs_.kv_block_bytes(stage.shape);
      if (bytes > costs_.rank_memory_bytes(stage.shape.node_class)) return false;
    }
    return true;
  }

  void try_schedule(const std::vector<PlacedStage>& stages, size_t gpus, const Schedule& schedule) {
    if (!fits(stages, schedule)) return;
    const size_t both = (r_.workload.prompt_tokens + r_.workload.output_tokens + 63) / 64;
    const size_t most = std::min(most_gpus_ / gpus, r_.workload.concurrency.value_or(most_gpus_));
    PipelineTimes times;
    double traffic = 0;
    for (size_t n = 1; n <= most && has_nodes(stages, n); ++n) {
      if (schedule.batch > most_batch(n)) continue;
      if (n == 1 || costs_.shares_hosts()) {
        times = {};
        times.n_stages = 0;
        traffic = 0;
        const std::vector<PlacedStage> sharing = with_ranks_at_once(stages, schedule, n);
        for (size_t s = 0; s < stages.size(); ++s) add(sharing, s, schedule, times, traffic);
        times.kv_blocks = std::max(schedule.batch * both, (r_.context + 63) / 64);
      }
      judge(times, schedule, n, n * gpus, traffic);
    }
  }

  // Each replica has a stage at work for each batch in flight, of which one prompt's chunks make as
  // many as there are; and its prefill stages, where it has such.
  std::vector<PlacedStage> with_ranks_at_once(std::vector<PlacedStage> stages,
                                              const Schedule& schedule, size_t n_replicas) const {
    if (!costs_.shares_hosts()) return stages;
    size_t decode = 0, prefill = 0;
    for (const PlacedStage& stage : stages) ++(stage.role == Role::prefill ? prefill : decode);
    const size_t chunks =
        (r_.workload.prompt_tokens + schedule.prefill_chunk - 1) / schedule.prefill_chunk;
    size_t at_work = std::max(schedule.batch, chunks);
    at_work = std::min({at_work, schedule.batches_in_flight, decode}) + prefill;
    for (PlacedStage& stage : stages) {
      const size_t ranks = stage.shape.tp / stage.shape.n_nodes;
      stage.shape.at_once =
          std::min(r_.cluster.nodes[stage.shape.node_class].gpus, ranks * at_work * n_replicas);
    }
    return stages;
  }

  void add(const std::vector<PlacedStage>& stages, size_t s, const Schedule& schedule,
           PipelineTimes& times, double& traffic) const {
    const PlacedStage& stage = stages[s];
    StageTimes ms = costs_.stage(stage.shape, schedule);
    const auto row = static_cast<double>(2 * r_.model.hidden);
    const auto prompt = static_cast<double>(r_.workload.prompt_tokens);
    const auto output = static_cast<double>(r_.workload.output_tokens);
    const double tokens =
        (stage.role == Role::decode ? 0 : prompt) + (stage.role == Role::prefill ? 0 : output);
    traffic +=
        2 * static_cast<double>(stage.layers.size() * (stage.shape.n_nodes - 1)) * tokens * row;
    if (s + 1 < stages.size()) {
      const PlacedStage& next = stages[s + 1];
      const bool across = next.part != stage.part;
      const EdgeShape edge = {stage.shape.tp, next.shape.tp, stage.shape.node_class,
                              next.shape.node_class, across};
      if (next.role != stage.role) {
        ms.prefill_ms += costs_.handover_ms(edge, stage.layers.size(), schedule);
        const double kv =
            4.0 * static_cast<double>(r_.model.n_layers * r_.model.n_kv_heads * r_.model.head_dim);
        traffic += across ? prompt * kv : 0;
      } else {
        const StageTimes more = costs_.edge(edge, schedule);
        ms.prefill_ms += more.prefill_ms;
        ms.decode_ms += more.decode_ms;
        traffic += across ? tokens * row : 0;
      }
    }
    if (stage.role != Role::decode) {
      times.prefill_sum_ms += ms.prefill_ms;
      times.prefill_max_ms = std::max(times.prefill_max_ms, ms.prefill_ms);
    }
    if (stage.role != Role::prefill) {
      times.decode_sum_ms += ms.decode_ms;
      times.decode_max_ms = std::max(times.decode_max_ms, ms.decode_ms);
      ++times.n_stages;
    }
    times.separate_groups |= stage.role == Role::prefill;
  }

  void judge(const PipelineTimes& times, const Schedule& schedule, size_t n_replicas, size_t gpus,
             double traffic) {
    ++n_tried_;
    const Workload& w = r_.workload;
    const double concurrency =
        w.concurrency ? static_cast<double>(*w.concurrency) / static_cast<double>(n_replicas)
                      : static_cast<double>(schedule.batch);
    const Served one = serving_.served(times, schedule, concurrency);
    if (w.slo_ttft_ms && one.ttft_ms > *w.slo_ttft_ms) return;
    if (w.slo_tpot_ms && one.tpot_ms > *w.slo_tpot_ms) return;
    if (w.objective == Objective::gpus && one.saturated) return;
    const double latency = one.ttft_ms + static_cast<double>(w.output_tokens - 1) * one.tpot_ms;
    const auto n = static_cast<double>(gpus);
    std::array<double, 3> score = {latency, n, traffic};
    if (w.objective == Objective::throughput)
      score[0] = -one.tokens_per_s * static_cast<double>(n_replicas);
    if (w.objective == Objective::gpus) score = {n, latency, traffic};
    best_ = std::min(best_, score);
  }

  const SearchRequest& r_;
  const StageCosts& costs_;
  const ServingModel& serving_;
  std::vector<size_t> chunks_;
  size_t most_gpus_ = 0;
  std::array<double, 3> best_{};
  size_t n_tried_ = 0;
};

}  // namespace weft::planner
