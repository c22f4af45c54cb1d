#include "planner/cost_model.h"

#include <algorithm>
#include <utility>

#include "runtime/base/error.h"

namespace weft::planner {
namespace {

// Chunks that are priced one by one; more are sampled evenly, since cost is linear in what
// precedes.
constexpr size_t kMostPricedChunks = 16;

void add_scaled(StepParts& sum, const StepParts& part, double weight) {
  sum.products_ms += part.products_ms * weight;
  sum.experts_ms += part.experts_ms * weight;
  sum.attention_ms += part.attention_ms * weight;
  sum.collectives_ms += part.collectives_ms * weight;
  sum.other_ms += part.other_ms * weight;
  sum.head_ms += part.head_ms * weight;
  sum.host_ms += part.host_ms * weight;
  sum.extrapolated = sum.extrapolated || part.extrapolated;
}

size_t batch_in_flight(const Schedule& schedule) {
  const size_t in_flight = std::max<size_t>(1, schedule.batches_in_flight);
  return std::max<size_t>(1, (schedule.batch + in_flight - 1) / in_flight);
}

}  // namespace

size_t prompt_chunks(size_t prompt_tokens, size_t prefill_chunk) {
  return std::max<size_t>(1, (prompt_tokens + prefill_chunk - 1) / prefill_chunk);
}

CostModel::CostModel(CostSetting setting) : setting_(std::move(setting)) {
  if (setting_.nodes.empty()) throw input_error("no class of nodes to price");
  if (setting_.prompt_tokens == 0) throw input_error("prompt_tokens 0: at least 1 is prefilled");
  habits_ = habits_of(setting_.engine, setting_.engine_version);
}

StepSetting CostModel::step_setting(size_t node_class) const {
  WEFT_EXPECT(node_class < setting_.nodes.size());
  const CostNode& node = setting_.nodes[node_class];
  return {&setting_.model, &node.machine,     &setting_.engine, setting_.weights,
          setting_.kv_key, setting_.kv_value, node.link,        setting_.attention_dp};
}

bool CostModel::affine_in_layers() const {
  return std::all_of(setting_.nodes.begin(), setting_.nodes.end(),
                     [](const CostNode& node) { return node.machine.caches.empty(); });
}

// Curves of several ranks at once are measured where they share something.
bool CostModel::shares_hosts() const {
  return std::any_of(setting_.nodes.begin(), setting_.nodes.end(), [](const CostNode& node) {
    const std::vector<ProductCurve>& curves = node.machine.products;
    return std::any_of(curves.begin(), curves.end(),
                       [](const ProductCurve& curve) { return curve.ranks > 1; });
  });
}

StepParts CostModel::decode_parts(const StageShape& shape, const Schedule& schedule) const {
  const double context =
      static_cast<double>(setting_.prompt_tokens) + static_cast<double>(setting_.output_tokens) / 2;
  return decode_step(step_setting(shape.node_class), shape, batch_in_flight(schedule), context);
}

StepParts CostModel::prefill_parts(const StageShape& shape, const Schedule& schedule) const {
  WEFT_EXPECT(schedule.prefill_chunk > 0);
  const size_t chunk = std::min(schedule.prefill_chunk, setting_.prompt_tokens);
  const size_t chunks = prompt_chunks(setting_.prompt_tokens, chunk);
  const size_t priced = std::min(chunks, kMostPricedChunks);
  StepParts mean;
  for (size_t i = 0; i < priced; ++i) {
    const size_t index = priced == 1 ? 0 : i * (chunks - 1) / (priced - 1);
    const size_t prior = index * chunk;
    const size_t tokens = std::min(chunk, setting_.prompt_tokens - prior);
    add_scaled(
        mean,
        prefill_step(step_setting(shape.node_class), shape, tokens, static_cast<double>(prior)),
        1.0 / static_cast<double>(priced));
  }
  return mean;
}

StageTimes CostModel::stage(const StageShape& shape, const Schedule& schedule) const {
  return {prefill_ms(shape, schedule), decode_ms(shape, schedule)};
}

double CostModel::prefill_ms(const StageShape& shape, const Schedule& schedule) const {
  return prefill_parts(shape, schedule).total_ms();
}

double CostModel::decode_ms(const StageShape& shape, const Schedule& schedule) const {
  return decode_parts(shape, schedule).total_ms();
}

size_t CostModel::chunk_tokens(const Schedule& schedule) const {
  return std::min(schedule.prefill_chunk, setting_.prompt_tokens);
}

// So many bytes over every pair of ranks, by the slower side's link.
Estimate CostModel::sent_us(const EdgeShape& edge, double bytes) const {
  const CostNode& from = setting_.nodes.at(edge.from_class);
  const CostNode& to = setting_.nodes.at(edge.to_class);
  const NodeLink& link = from.link.gbps < to.link.gbps || to.link.gbps <= 0 ? from.link : to.link;
  return send_recv_us(from.machine, link, edge.across_nodes,
                      bytes / static_cast<double>(std::min(edge.from_tp, edge.to_tp)));
}

// Each receiver gets its slice of [tokens * hidden] once over the wire; the group then gathers the
// rest inside, which costs at most half of an all-reduce of the whole.
Estimate CostModel::edge_us(const EdgeShape& edge, size_t tokens) const {
  const double bytes = static_cast<double>(tokens * setting_.model.hidden) * 2;
  Estimate sum = sent_us(edge, bytes);
  if (edge.to_tp > 1)
    sum += all_reduce_us(setting_.nodes.at(edge.to_class).machine, edge.to_tp, bytes) * 0.5;
  return sum;
}

Estimate CostModel::handover_us(const EdgeShape& edge, size_t n_layers,
                                const Schedule& schedule) const {
  const ModelSpec& model = setting_.model;
  const double numbers =
      static_cast<double>(n_layers * model.n_kv_heads * model.head_dim);  // keys of a token
  const double token_bytes =
      numbers * (kv_bytes_each(setting_.kv_key) + kv_bytes_each(setting_.kv_value));
  return sent_us(edge, static_cast<double>(chunk_tokens(schedule)) * token_bytes);
}

StageTimes CostModel::edge(const EdgeShape& edge, const Schedule& schedule) const {
  return {edge_us(edge, chunk_tokens(schedule)).us * 1e-3,
          edge_us(edge, batch_in_flight(schedule)).us * 1e-3};
}

double CostModel::handover_ms(const EdgeShape& edge, size_t n_layers,
                              const Schedule& schedule) const {
  return handover_us(edge, n_layers, schedule).us * 1e-3;
}

bool CostModel::handover_extrapolated(const EdgeShape& edge, size_t n_layers,
                                      const Schedule& schedule) const {
  return handover_us(edge, n_layers, schedule).extrapolated;
}

bool CostModel::edge_extrapolated(const EdgeShape& edge, const Schedule& schedule) const {
  return edge_us(edge, chunk_tokens(schedule)).extrapolated ||
         edge_us(edge, batch_in_flight(schedule)).extrapolated;
}

GpuMemory CostModel::memory(const StageShape& shape, const Schedule& schedule) const {
  return gpu_memory(step_setting(shape.node_class), shape, schedule.batch, chunk_tokens(schedule),
                    habits_.reserve_gib);
}

size_t CostModel::fixed_bytes(const StageShape& shape, const Schedule& schedule) const {
  return memory(shape, schedule).total();
}

std::vector<BytesPart> CostModel::fixed_parts(const StageShape& shape,
                                              const Schedule& schedule) const {
  const GpuMemory bytes = memory(shape, schedule);
  return {{"weights", bytes.weights},
          {"activations", bytes.activations},
          {"graphs", bytes.graphs},
          {"buffers", bytes.buffers},
          {"reserve", bytes.reserve}};
}

size_t CostModel::kv_block_bytes(const StageShape& shape) const {
  return gpu_kv_block_bytes(step_setting(shape.node_class), shape);
}

size_t CostModel::rank_memory_bytes(size_t node_class) const {
  const CostNode& node = setting_.nodes.at(node_class);
  const double gib = node.gpu_memory_gib > 0 ? node.gpu_memory_gib : node.machine.rates.memory_gib;
  return static_cast<size_t>(gib * habits_.memory_fraction * (size_t{1} << 30));
}

}  // namespace weft::planner
