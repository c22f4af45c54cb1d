// A stage's step is its kernels one after another: nothing here overlaps, since one stream runs
// them and the measured curves are of kernels that have the GPU for themselves.
#include "planner/step_cost.h"

#include <algorithm>
#include <cmath>

#include "planner/shard_shapes.h"
#include "runtime/base/error.h"

namespace weft::planner {
namespace {

// Norms, RoPE, gated activation, residual: how often a layer reads or writes [tokens, hidden].
constexpr double kElementwisePasses = 16;
constexpr double kActivationBytes = 2;
constexpr std::string_view kOwnEngine = "weft";

size_t divide_up(size_t a, size_t b) { return (a + b - 1) / b; }

// Sizes of one rank.
struct RankSizes {
  size_t heads, kv_heads, ffn, vocab;
  size_t at_once;       // ranks of a node in this stage
  size_t expert_ranks;  // ranks that share the experts out
  size_t expert_ffn;    // columns of an expert on this rank

  RankSizes(const StepSetting& setting, const StageShape& shape) {
    const ModelSpec& model = *setting.model;
    heads = divide_up(model.n_heads, shape.tp);
    kv_heads = divide_up(model.n_kv_heads, shape.tp);
    const bool pads = setting.engine->name == kOwnEngine;
    ffn = divide_up(pads ? padded_ffn(model, shape.tp) : model.ffn, shape.tp);
    vocab = divide_up(pads ? padded_vocab(model, shape.tp) : model.vocab, shape.tp);
    at_once = std::max(shape.at_once, shape.tp / std::max<size_t>(1, shape.n_nodes));
    expert_ranks = std::max<size_t>(1, shape.ep);
    expert_ffn = divide_up(model.ffn * expert_ranks, shape.tp * setting.attention_dp);
    expert_ffn = std::min(expert_ffn, model.ffn);
  }

  // Weights of the stage and keys and values of so many tokens: what a rank reads in a step.
  double step_bytes(const StepSetting& setting, const StageShape& shape, double kv_tokens) const {
    const ModelSpec& model = *setting.model;
    const auto width = [&](size_t n) { return static_cast<double>(n * model.head_dim); };
    const double hidden = static_cast<double>(model.hidden);
    const double weights =
        hidden * (width(2 * heads + 2 * kv_heads) + 3 * static_cast<double>(ffn));
    const double kv = kv_tokens * width(kv_heads) *
                      (kv_bytes_each(setting.kv_key) + kv_bytes_each(setting.kv_value));
    const double head = shape.has_head ? hidden * static_cast<double>(vocab) * 2 : 0;
    return static_cast<double>(shape.n_layers) *
               (weights * weight_bytes_each(setting.weights) + kv) +
           head;
  }

  HeadCounts head_counts(const StepSetting& setting) const {
    return {heads, kv_heads, setting.model->head_dim};
  }
};

// Products of one layer but the experts'.
Estimate layer_products(const StepSetting& s, const RankSizes& rank, size_t tokens, double missed) {
  const ModelSpec& model = *s.model;
  const auto product = [&](NumberFormat format, size_t outputs, size_t inputs) {
    return product_us(*s.machine, format, tokens, outputs, inputs, rank.at_once, missed);
  };
  const size_t qkv = (rank.heads + 2 * rank.kv_heads) * model.head_dim;
  Estimate sum = product(s.weights, qkv, model.hidden);
  sum += product(s.weights, model.hidden, rank.heads * model.head_dim);
  if (model.n_experts != 0)  // the router stays in bf16
    return sum + product(NumberFormat::bf16, model.n_experts, model.hidden);
  sum += product(s.weights, 2 * rank.ffn, model.hidden);
  return sum + product(s.weights, model.hidden, rank.ffn);
}

Estimate head_product(const StepSetting& s, const RankSizes& rank, size_t rows, double missed) {
  return product_us(*s.machine, NumberFormat::bf16, rows, rank.vocab, s.model->hidden, rank.at_once,
                    missed);
}

// Experts of one layer on one rank: reading those that have tokens, or arithmetic over the tokens.
// No curve of grouped products is at hand, so both go by data-sheet rates and the engine's factors.
double layer_experts_us(const StepSetting& s, const RankSizes& rank, double tokens) {
  const ModelSpec& model = *s.model;
  const EngineConstants& engine = s.engine->constants;
  if (model.n_experts == 0) return 0;
  const double experts =
      static_cast<double>(model.n_experts) / static_cast<double>(rank.expert_ranks);
  const double touched = experts_touched(model, tokens) / static_cast<double>(rank.expert_ranks);
  const double weights =
      3 * static_cast<double>(model.hidden) * static_cast<double>(rank.expert_ffn);
  const double read = (touched + engine.experts_idle * (experts - touched)) * weights *
                      weight_bytes_each(s.weights) / s.machine->rates.memory_gbps * 1e-3;
  const double rows = tokens * static_cast<double>(model.experts_per_token) /
                      static_cast<double>(rank.expert_ranks);
  const bool narrow = s.weights == NumberFormat::fp8 || s.weights == NumberFormat::int8;
  const GpuRates& rates = s.machine->rates;
  const double tflops = narrow && rates.fp8_tflops > 0 ? rates.fp8_tflops : rates.bf16_tflops;
  const double compute = 2 * rows * weights / tflops * 1e-6;
  return read / engine.experts_bandwidth + compute / engine.experts_compute;
}

// Two all-reduces a layer. Data-parallel attention gathers and scatters over all its groups.
Estimate layer_collectives(const StepSetting& s, const StageShape& shape, double tokens) {
  const double bytes = tokens * static_cast<double>(s.model->hidden) * kActivationBytes;
  const size_t ranks = shape.tp * s.attention_dp;
  const Estimate one = shape.n_nodes > 1
                           ? all_reduce_across_us(*s.machine, s.link, ranks, shape.n_nodes, bytes)
                           : all_reduce_us(*s.machine, ranks, bytes);
  return one * 2;
}

double layers_of(const StageShape& shape) { return static_cast<double>(shape.n_layers); }

// What weft was timed to take on this very machine; null where it was not, and for other engines.
const OverheadCurve* timed_overheads(const StepSetting& s, const RankSizes& rank) {
  return s.engine->name == kOwnEngine ? for_ranks(s.machine->overheads, rank.at_once) : nullptr;
}

// The engine's constants, or those that were timed: curves are then of weft's own kernels, and
// waiting ranks and kernel starts are in them.
EngineConstants constants_of(const StepSetting& s, const OverheadCurve* timed) {
  EngineConstants constants = s.engine->constants;
  if (timed == nullptr) return constants;
  constants.products = constants.attention = constants.prefill_products = 1;
  constants.all_reduce_us = constants.prefill_layer_us = 0;
  constants.step_us = timed->step_us;
  constants.layer_us = timed->layer_us;
  const double logits_bytes = static_cast<double>(s.model->vocab) * 4;
  constants.sequence_us = timed->sample_us + logits_bytes / timed->sample_gbps * 1e-3;
  return constants;
}

// Element-wise work of one layer. What weft was timed to take is mostly of what a rank holds of a
// layer: the chunks of its row-parallel sums, its activations.
double passes_us(const StepSetting& s, const StageShape& shape, const OverheadCurve* timed,
                 double tokens) {
  const double gbps = timed != nullptr ? timed->pass_gbps * static_cast<double>(shape.tp)
                                       : s.machine->rates.memory_gbps;
  return layer_pass_bytes(tokens, static_cast<double>(s.model->hidden)) / gbps * 1e-3;
}

// What a step sends beside its layers' sums, as weft does it: the embedding's sum, the logits'
// shards to the rank that samples, and the tokens back to the first stage.
Estimate step_messages(const StepSetting& s, const StageShape& shape, const RankSizes& rank,
                       double tokens, double rows) {
  Estimate sum;
  if (shape.has_embedding) sum += layer_collectives(s, shape, tokens) * 0.5;
  if (!shape.has_head) return sum;
  // Ranks of a stage come to it together, as to a sum, whose curve counts two bytes a float32.
  const double shard_bytes = rows * static_cast<double>(rank.vocab) * 4;
  if (shape.tp > 1) sum += all_reduce_us(*s.machine, shape.tp, shard_bytes / 2);
  if (!shape.has_embedding) sum += send_recv_us(*s.machine, s.link, false, 1);
  return sum;
}

// What a rank waits at its sums for the slowest of its stage.
void add_waits(const StageShape& shape, const OverheadCurve& timed, StepParts& parts) {
  if (shape.tp == 1) return;
  const double own = parts.products_ms + parts.attention_ms + parts.other_ms + parts.head_ms;
  parts.collectives_ms += timed.wait_share * own;
}

}  // namespace

double layer_pass_bytes(double tokens, double hidden) {
  return tokens * hidden * kActivationBytes * kElementwisePasses;
}

double experts_touched(const ModelSpec& model, double tokens) {
  if (model.n_experts == 0) return 0;
  const double experts = static_cast<double>(model.n_experts);
  const double missed = 1 - static_cast<double>(model.experts_per_token) / experts;
  return experts * (1 - std::pow(missed, tokens));
}

double layer_active_weights(const ModelSpec& model) {
  const double hidden = static_cast<double>(model.hidden);
  const double heads = static_cast<double>(2 * model.n_heads + 2 * model.n_kv_heads);
  const double copies = static_cast<double>(std::max<size_t>(1, model.experts_per_token));
  return hidden * (heads * static_cast<double>(model.head_dim) +
                   3 * static_cast<double>(model.ffn) * copies);
}

StepParts decode_step(const StepSetting& s, const StageShape& shape, size_t batch, double context) {
  WEFT_EXPECT(s.model && s.machine && s.engine && shape.tp > 0 && batch > 0);
  const RankSizes rank(s, shape);
  const OverheadCurve* timed = timed_overheads(s, rank);
  const EngineConstants engine = constants_of(s, timed);
  const double layers = layers_of(shape);
  const size_t own = divide_up(batch, s.attention_dp);  // sequences of this rank's attention
  const double sequences = static_cast<double>(batch);
  StepParts parts;
  parts.extrapolated = s.machine->other_chip;
  const auto ms = [&](const Estimate& estimate) {
    parts.extrapolated = parts.extrapolated || estimate.extrapolated;
    return estimate.us * 1e-3;
  };
  const double missed = missed_share(
      *s.machine, rank.step_bytes(s, shape, static_cast<double>(own) * context), rank.at_once);
  parts.products_ms = layers * ms(layer_products(s, rank, own, missed)) * engine.products;
  parts.experts_ms = layers * layer_experts_us(s, rank, sequences) * 1e-3;
  parts.attention_ms = layers *
                       ms(decode_attention_us(*s.machine, s.kv_key, s.kv_value, own, context,
                                              rank.head_counts(s), rank.at_once)) *
                       engine.attention;
  parts.collectives_ms = layers * ms(layer_collectives(s, shape, sequences));
  if (shape.tp * s.attention_dp > 1) parts.collectives_ms += layers * 2e-3 * engine.all_reduce_us;
  parts.other_ms = layers * engine.layer_us * 1e-3;
  if (shape.has_head) parts.head_ms = ms(head_product(s, rank, own, missed));
  parts.host_ms = engine.step_us * 1e-3;
  if (shape.has_head) parts.host_ms += static_cast<double>(own) * engine.sequence_us * 1e-3;
  if (timed == nullptr) return parts;
  parts.other_ms += layers * passes_us(s, shape, timed, sequences) * 1e-3;
  parts.collectives_ms += ms(step_messages(s, shape, rank, sequences, sequences));
  add_waits(shape, *timed, parts);
  return parts;
}

StepParts prefill_step(const StepSetting& s, const StageShape& shape, size_t tokens, double prior) {
  WEFT_EXPECT(s.model && s.machine && s.engine && shape.tp > 0 && tokens > 0);
  const RankSizes rank(s, shape);
  const OverheadCurve* timed = timed_overheads(s, rank);
  const EngineConstants engine = constants_of(s, timed);
  const double layers = layers_of(shape);
  const double count = static_cast<double>(tokens);
  StepParts parts;
  parts.extrapolated = s.machine->other_chip;
  const auto ms = [&](const Estimate& estimate) {
    parts.extrapolated = parts.extrapolated || estimate.extrapolated;
    return estimate.us * 1e-3;
  };
  const double missed =
      missed_share(*s.machine, rank.step_bytes(s, shape, prior + count), rank.at_once);
  parts.products_ms =
      layers * ms(layer_products(s, rank, tokens, missed)) * engine.prefill_products;
  // Groups of data-parallel attention prefill a prompt each, and meet at the experts.
  const double all_groups = count * static_cast<double>(s.attention_dp);
  parts.experts_ms = layers * layer_experts_us(s, rank, all_groups) * 1e-3;
  parts.attention_ms = layers * ms(prefill_attention_us(*s.machine, count, prior,
                                                        rank.head_counts(s), rank.at_once));
  parts.collectives_ms = layers * ms(layer_collectives(s, shape, all_groups));
  parts.other_ms = layers * passes_us(s, shape, timed, count) * 1e-3;
  if (shape.has_head) parts.head_ms = ms(head_product(s, rank, 1, missed));
  // The host enqueues a prefill kernel by kernel; a GPU that is quicker waits for it.
  const double gpu_ms = parts.total_ms() - parts.head_ms;
  parts.host_ms = std::max(0.0, layers * engine.prefill_layer_us * 1e-3 - gpu_ms);
  parts.host_ms += engine.step_us * 1e-3;
  if (timed == nullptr) return parts;
  parts.other_ms += layers * timed->layer_us * 1e-3;
  if (shape.has_head) parts.host_ms += engine.sequence_us * 1e-3;
  parts.collectives_ms += ms(step_messages(s, shape, rank, count, 1));
  add_waits(shape, *timed, parts);
  return parts;
}

}  // namespace weft::planner
