// What one step of one stage costs, by part: the products of its layers by shape, experts,
// attention, collectives, element-wise work, head, host.
#pragma once

#include <cstddef>

#include "planner/engine_profile.h"
#include "planner/kernel_cost.h"
#include "planner/model_spec.h"
#include "planner/stage_cost.h"

namespace weft::planner {

// What holds for all stages of one node class. The facts outlive it.
struct StepSetting {
  const ModelSpec* model = nullptr;
  const MachineProfile* machine = nullptr;
  const EngineProfile* engine = nullptr;
  NumberFormat weights = NumberFormat::bf16;
  NumberFormat kv_key = NumberFormat::bf16;
  NumberFormat kv_value = NumberFormat::bf16;
  NodeLink link;            // between nodes
  size_t attention_dp = 1;  // groups of tp ranks that share the experts of tp * attention_dp ranks
};

struct StepParts {
  double products_ms = 0;
  double experts_ms = 0;
  double attention_ms = 0;
  double collectives_ms = 0;
  double other_ms = 0;  // element-wise work, kernel starts
  double head_ms = 0;
  double host_ms = 0;
  bool extrapolated = false;  // some part lies outside a measured curve

  double total_ms() const {
    return products_ms + experts_ms + attention_ms + collectives_ms + other_ms + head_ms + host_ms;
  }
};

// One token for each of `batch` sequences that hold `context` tokens each.
StepParts decode_step(const StepSetting& setting, const StageShape& shape, size_t batch,
                      double context);

// `tokens` tokens of one prompt after `prior` of it (of one in each group of attention_dp).
StepParts prefill_step(const StepSetting& setting, const StageShape& shape, size_t tokens,
                       double prior);

// Bytes that the element-wise work of one layer reads and writes.
double layer_pass_bytes(double tokens, double hidden);

// Experts that get at least one of `tokens` tokens, of a router that favours none.
double experts_touched(const ModelSpec& model, double tokens);

// Weights of one layer that a token multiplies with (all experts it is sent to), and of all
// experts.
double layer_active_weights(const ModelSpec& model);

}  // namespace weft::planner
