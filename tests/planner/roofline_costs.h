// A cost model on a napkin for tests and timings of the search: dense models in bf16 on GPUs of one
// kind, bound by memory and arithmetic. The planner's own is planner/cost_model.h.
#pragma once

#include <algorithm>

#include "planner/cluster_spec.h"
#include "planner/model_spec.h"
#include "planner/plan.h"
#include "planner/stage_cost.h"

namespace weft::planner {

class RooflineCosts : public StageCosts {
 public:
  RooflineCosts(const ModelSpec& model, const ClusterSpec& cluster, double prompt_tokens)
      : model_(model), cluster_(cluster), context_(prompt_tokens) {}

  bool affine_in_layers() const override { return true; }

  StageTimes stage(const StageShape& s, const Schedule& schedule) const override {
    const auto batch = static_cast<double>((schedule.batch + schedule.batches_in_flight - 1) /
                                           schedule.batches_in_flight);
    return {rows_ms(s, static_cast<double>(schedule.prefill_chunk), 1),
            rows_ms(s, batch, batch) + (s.has_head ? head_bytes(s) / kBytesPerMs : 0)};
  }

  StageTimes edge(const EdgeShape& e, const Schedule& schedule) const override {
    const NodeClass& node = cluster_.nodes[e.from_class];
    const double rate = (e.across_nodes ? node.nic_gbps : node.nvlink_gbps) * 1e6;  // bytes a ms
    const double fixed = e.across_nodes ? 0.02 : 0.01;
    const auto batch = static_cast<double>((schedule.batch + schedule.batches_in_flight - 1) /
                                           schedule.batches_in_flight);
    const double row = 2 * static_cast<double>(model_.hidden) / static_cast<double>(e.to_tp);
    return {fixed + row * static_cast<double>(schedule.prefill_chunk) / rate,
            fixed + row * batch / rate};
  }

  size_t fixed_bytes(const StageShape& s, const Schedule& schedule) const override {
    const double rows = static_cast<double>(std::max(schedule.prefill_chunk, schedule.batch));
    const double buffers = rows * 12 * static_cast<double>(model_.hidden);
    const double ends = (s.has_embedding + s.has_head) * head_bytes(s);
    return static_cast<size_t>(weight_bytes(s) + ends + buffers) + (size_t{3} << 30);
  }
  size_t kv_block_bytes(const StageShape& s) const override {
    return kKvBlockTokens * s.n_layers * static_cast<size_t>(kv_token_bytes(s.tp));
  }
  size_t rank_memory_bytes(size_t node_class) const override {
    return gpu_memory_bytes(cluster_.nodes[node_class]);
  }

 private:
  static constexpr double kBytesPerMs = 2.8e9;
  static constexpr double kFlopsPerMs = 6e11;

  double weight_bytes(const StageShape& s) const {
    const auto h = static_cast<double>(model_.hidden);
    const auto heads =
        static_cast<double>((2 * model_.n_heads + 2 * model_.n_kv_heads) * model_.head_dim);
    const double layer = 2 * h * (heads + 3 * static_cast<double>(model_.ffn));
    return layer * static_cast<double>(s.n_layers) / static_cast<double>(s.tp);
  }
  double head_bytes(const StageShape& s) const {
    return 2 * static_cast<double>(model_.vocab * model_.hidden) / static_cast<double>(s.tp);
  }
  double kv_token_bytes(size_t tp) const {  // of one layer
    return 4 * static_cast<double>(model_.n_kv_heads * model_.head_dim) / static_cast<double>(tp);
  }
  double rows_ms(const StageShape& s, double rows, double sequences) const {
    const auto layers = static_cast<double>(s.n_layers);
    const double kv = sequences * context_ * layers * kv_token_bytes(s.tp);
    const double read = (weight_bytes(s) + kv) / kBytesPerMs;
    const double compute = weight_bytes(s) * rows / kFlopsPerMs;
    const double payload = 2 * rows * static_cast<double>(model_.hidden);
    const double reduce = s.tp == 1 ? 0 : 2 * layers * (0.008 + payload * 2 / 4.5e8);
    return read + compute + reduce + layers * 0.02 + 0.05;
  }

  ModelSpec model_;
  ClusterSpec cluster_;
  double context_;
};

}  // namespace weft::planner
