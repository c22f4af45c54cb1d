#include "planner/row_prediction.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "planner/cost_model.h"
#include "planner/pipeline_model.h"
#include "planner/plan.h"
#include "planner/serving_model.h"
#include "runtime/base/error.h"
#include "runtime/base/sha256.h"
#include "runtime/base/text.h"

namespace weft::planner {
namespace {

CostSetting cost_setting(Catalog& catalog, const MeasuredRow& row) {
  CostSetting setting;
  setting.model = catalog.model(row.model);
  setting.engine = catalog.engine(row.engine);
  setting.engine_version = row.engine_version;
  setting.weights = row.weights;
  setting.kv_key = setting.kv_value =
      default_kv(habits_of(setting.engine, row.engine_version), row.weights);
  setting.nodes = {{catalog.machine(row.gpu), 0, {}}};
  setting.prompt_tokens = row.prompt_tokens;
  setting.output_tokens = row.output_tokens;
  setting.attention_dp = row.attention_dp;
  return setting;
}

std::string layout_problem(const ModelSpec& model, const MeasuredRow& row) {
  const std::string tp = tp_problem(model, row.tp, false);
  if (!tp.empty()) return tp;
  if (row.pp > model.n_layers)
    return fmt::format("pp {} is more than {} layers", row.pp, model.n_layers);
  if (model.n_experts == 0) return "";
  const size_t width = row.tp * row.attention_dp;
  if (width % row.moe_ep != 0 || model.n_experts % row.moe_ep != 0)
    return fmt::format("moe_ep {} does not divide the {} ranks and the {} experts", row.moe_ep,
                       width, model.n_experts);
  return "";
}

// Equal stages, the first ones a layer longer where layers don't divide.
std::vector<StageShape> stages_of(const ModelSpec& model, const MeasuredRow& row) {
  std::vector<StageShape> stages(row.pp);
  for (size_t i = 0; i < row.pp; ++i) {
    stages[i].n_layers = model.n_layers / row.pp + (i < model.n_layers % row.pp ? 1 : 0);
    stages[i].tp = row.tp;
    if (model.n_experts != 0) stages[i].ep = row.moe_ep;
  }
  stages.front().has_embedding = true;
  stages.back().has_head = true;
  return stages;
}

// Blocks that the fullest stage holds; nothing where the rest alone is too much, with the reason.
size_t kv_blocks_of(const CostModel& costs, const std::vector<StageShape>& stages,
                    const Schedule& schedule, std::string& reason) {
  size_t least = SIZE_MAX;
  for (const StageShape& shape : stages) {
    const size_t fixed = costs.fixed_bytes(shape, schedule);
    const size_t limit = costs.rank_memory_bytes(shape.node_class);
    const size_t block = costs.kv_block_bytes(shape);
    const size_t blocks = fixed < limit ? (limit - fixed) / block : 0;
    if (blocks == 0)
      reason = fmt::format("weights and buffers take {} of the {} a GPU gives the engine",
                           human_bytes(fixed), human_bytes(limit));
    least = std::min(least, blocks);
  }
  return least;
}

PipelineTimes times_of(const CostModel& costs, const std::vector<StageShape>& stages,
                       const Schedule& schedule) {
  std::vector<StageAndEdge> parts;
  for (size_t i = 0; i < stages.size(); ++i) {
    StageAndEdge part;
    part.stage = costs.stage(stages[i], schedule);
    const EdgeShape edge{stages[i].tp, stages[i].tp, 0, 0, false};
    if (i + 1 < stages.size()) part.edge = costs.edge(edge, schedule);
    parts.push_back(part);
  }
  return pipeline_times(parts);
}

void add(StepParts& sum, const StepParts& part) {
  sum.products_ms += part.products_ms;
  sum.experts_ms += part.experts_ms;
  sum.attention_ms += part.attention_ms;
  sum.collectives_ms += part.collectives_ms;
  sum.other_ms += part.other_ms;
  sum.head_ms += part.head_ms;
  sum.host_ms += part.host_ms;
  sum.extrapolated = sum.extrapolated || part.extrapolated;
}

// Milliseconds of one GPU that all requests served during one request's life need at the very
// least: kernels at the best rates that were ever measured, links at theirs, nothing else.
struct LeastWork {
  double products_ms = 0;
  double attention_ms = 0;
  double links_ms = 0;
  double cache_ms = 0;  // reading keys and values
  double total() const { return products_ms + attention_ms + links_ms + cache_ms; }
};

LeastWork least_work(const CostSetting& s, const MeasuredRow& row) {
  const ModelSpec& model = s.model;
  const MachineProfile& machine = s.nodes.front().machine;
  const BestRates best = best_rates(machine, row.weights);
  const double requests = static_cast<double>(row.concurrency);
  const double gpus = static_cast<double>(gpus_of(row));
  const double prompt = static_cast<double>(row.prompt_tokens);
  const double layers = static_cast<double>(model.n_layers);
  const double width = static_cast<double>(model.n_heads * model.head_dim);
  LeastWork work;
  work.products_ms = requests * 2 * prompt * layers * layer_active_weights(model) / gpus /
                     best.product_tflops * 1e-9;
  work.attention_ms =
      requests * 2 * prompt * prompt * width * layers / gpus / best.prefill_attention_tflops * 1e-9;
  if (row.tp > 1) {
    const double bytes = 2 * layers * prompt * static_cast<double>(model.hidden) * 2;
    work.links_ms = requests * bytes / static_cast<double>(row.pp * row.attention_dp) /
                    best_all_reduce_gbps(machine, row.tp) * 1e-6;
  }
  const double context = prompt + static_cast<double>(row.output_tokens) / 2;
  const double token_bytes = layers * static_cast<double>(model.n_kv_heads * model.head_dim) *
                             (kv_bytes_each(s.kv_key) + kv_bytes_each(s.kv_value));
  const double reads = static_cast<double>(row.output_tokens - 1);
  work.cache_ms = requests * reads * context * token_bytes / gpus / best.memory_gbps * 1e-6;
  return work;
}

// Why no hardware could have done what the row says; "" where it could.
std::string impossible(const CostSetting& s, const MeasuredRow& row) {
  const double weights = layer_active_weights(s.model) * static_cast<double>(s.model.n_layers) *
                         element_bytes(row.weights) /
                         static_cast<double>(row.tp * row.attention_dp);
  const double read_ms = weights / s.nodes.front().machine.rates.memory_gbps * 1e-6;
  if (row.tpot_ms < read_ms)
    return fmt::format("a token in {:.2f} ms, but reading its weights takes {:.2f} ms", row.tpot_ms,
                       read_ms);
  const LeastWork work = least_work(s, row);
  const double life_ms = row.ttft_ms + static_cast<double>(row.output_tokens - 1) * row.tpot_ms;
  if (life_ms >= work.total()) return "";
  return fmt::format(
      "{} requests in {:.0f} ms, but at the best rates measured they take {:.0f} ms: prompts' "
      "products {:.0f}, attention {:.0f}, links {:.0f}, reading the {} cache {:.0f} (were prompts "
      "served from a prefix cache, or fewer requests at once?)",
      row.concurrency, life_ms, work.total(), work.products_ms, work.attention_ms, work.links_ms,
      format_name(s.kv_key), work.cache_ms);
}

void predict(const CostModel& costs, const MeasuredRow& row, RowPrediction& prediction) {
  const CostSetting& setting = costs.setting();
  const EngineHabits& habits = costs.habits();
  const std::vector<StageShape> stages = stages_of(setting.model, row);
  Schedule schedule;
  schedule.batches_in_flight = row.pp;
  schedule.prefill_chunk = habits.prefill_chunk;
  schedule.batch = std::min(row.concurrency, habits.batch_limit);
  const size_t blocks = kv_blocks_of(costs, stages, schedule, prediction.left_out);
  const ServedRequest request{row.prompt_tokens, row.output_tokens};
  const size_t with_kv = blocks / mean_kv_blocks(request) * row.attention_dp;
  if (with_kv == 0) {
    if (prediction.left_out.empty())
      prediction.left_out = fmt::format("KV for {} blocks of {} that one sequence needs", blocks,
                                        mean_kv_blocks(request));
    return;
  }
  schedule.batch = std::min(schedule.batch, with_kv);
  PipelineTimes times = times_of(costs, stages, schedule);
  times.kv_blocks = blocks;
  // Each group of data-parallel attention serves its share.
  const double groups = static_cast<double>(row.attention_dp);
  Schedule of_group = schedule;
  of_group.batch = (schedule.batch + row.attention_dp - 1) / row.attention_dp;
  const double asked = static_cast<double>(row.concurrency) / groups;
  const Served served = ContinuousBatching(request, habits).served(times, of_group, asked);
  prediction.ttft_ms = served.ttft_ms;
  prediction.tpot_ms = served.tpot_ms;
  prediction.tokens_per_s = served.tokens_per_s * groups;
  prediction.served_at_once = served.concurrency * groups;
  prediction.saturated = served.saturated;
  for (const StageShape& shape : stages) {
    add(prediction.decode, costs.decode_parts(shape, schedule));
    add(prediction.prefill, costs.prefill_parts(shape, schedule));
  }
  prediction.extrapolated = prediction.decode.extrapolated || prediction.prefill.extrapolated;
  prediction.scored_ttft = habits.steady && !served.saturated;
}

}  // namespace

bool in_fit_half(const MeasuredRow& row) {
  const std::string shape =
      fmt::format("{}|{}|{}|{}|{}", row.model, row.gpu, format_name(row.weights), row.prompt_tokens,
                  row.output_tokens);
  const std::string hash = sha256_hex(shape);
  return std::string_view("02468ace").find(hash[1]) != std::string_view::npos;
}

RowPrediction predict_row(Catalog& catalog, const MeasuredRow& row) {
  RowPrediction prediction;
  prediction.fit_half = in_fit_half(row);
  catalog.machine(row.gpu);  // an unknown GPU is an error; models and engines may be missing
  CostSetting setting;
  try {
    setting = cost_setting(catalog, row);
  } catch (const UnknownName& unknown) {
    prediction.left_out = unknown.what();
    return prediction;
  }
  prediction.is_moe = setting.model.n_experts != 0;
  prediction.left_out = layout_problem(setting.model, row);
  if (prediction.left_out.empty()) prediction.left_out = impossible(setting, row);
  if (!prediction.left_out.empty()) return prediction;
  predict(CostModel(std::move(setting)), row, prediction);
  return prediction;
}

}  // namespace weft::planner
