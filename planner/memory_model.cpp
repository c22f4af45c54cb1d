// What the engine allocates on one rank, term by term. T max_batch_tokens, S max_sequences, M
// batches_in_flight, B kv_blocks; h, kv, f, v a rank's query heads, KV heads, padded FFN columns,
// padded vocabulary rows; d head_dim; a, w the bytes of an activation and of a weight.
//
//   weights      the tensors of runtime/weights.h, each from a multiple of 64 bytes, in w
//   KV           B blocks of [layers, key|value, kv, 64, d]
//   activations  each from a multiple of 64 bytes:
//                residual       [T, hidden] + tp   a
//                normed         [T, hidden]        a
//                qkv            [T, (h + 2 kv) d]  a
//                attended       [T, h d]           a
//                gate_up        [T, 2 f]           a
//                gated          [T, f]             a
//                partial        [T, hidden]        f32
//                scratch        the larger of a product's, [T, widest + deepest + 128] f32, of all
//                               products of a layer the most outputs and the most inputs, and
//                               attention's, a tile a thread (kAssumedThreads)
//   buffers      edge           2 x [T, hidden]    a, where a stage follows
//                reduction      [T, hidden]        f32, where tp > 1
//                transfers      64 bytes for each that a communicator can have in flight
//                RoPE table     [context, d / 2, 2] f32
//                slots          [S, context / 64]  i32 block table, 40 bytes a sequence, 12 a row
//                batches        M + 2 messages (plan_messages.h)
//                results        1 message; M + 1 more on the first and the last stage
//                scheduler      [B] i32 free blocks, 28 + 8 M bytes a sequence, first stage
//                sampled rows   2 x [S, hidden]    a, last stage
//                logits         [S, v]             f32, last stage
//                all logits     [S, tp v]          f32, last stage where tp > 1
//                head's product [S, hidden + v + 128] f32, last stage
//                seen ids       [S, vocab]         bytes, last stage
//                sampling       20 bytes a token of the vocabulary for each of 16 threads and 40 a
//                               sequence, last stage
//                process        kProcessBytes
//
// On a GPU the weights and KV are the same; everything else starts at multiples of 256 bytes, with
// R = max(T, 2 S) rows:
//
//   activations  workspace      [R, inputs + outputs] a of the largest product, and cuBLASLt's
//                residual       [R, hidden] + tp   a
//                qkv, attended, gated as above, R rows
//                deferred norms [32, hidden]       a, and 32 of 1024 sums f32
//                partial        [R, hidden]        f32, where tp > 1
//                attention      parts of sums, [context positions / 512 + …, h, d + 4] f32
//                RoPE table     [context, d / 2, 2] f32
//   buffers      step inputs    5 arrays of a row or a sample, tiles, table entries
//                block tables   [S, context / 64]  i32
//                edge           2 x [T, hidden]    a, where a stage follows
//                sampled rows   [2 S, hidden]      a, last stage
//                logits         [2 S, v]           f32, last stage; tp of them more where tp > 1
//                seen ids       [S, vocab]         bytes, last stage
//
// Ranks of a stage hold the same, since shards are padded to equal sizes; of the first stage rank 0
// alone schedules, of the last rank 0 alone holds all logits and seen ids: they count. Not counted:
// the requests themselves with their texts, and the rows of logits that a run may ask to keep.
#include "planner/memory_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "planner/model_fields.h"
#include "planner/plan_fields.h"
#include "planner/plan_messages.h"
#include "runtime/base/error.h"

namespace weft::planner {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kLanes = 16;          // of the CPU backend's sums
constexpr size_t kProductLanes = 128;  // 8 chunks of them
// kernels/attention.cpp: query rows of a tile, positions of a span of scores, floats that its
// products need.
constexpr size_t kTileRows = 32;
constexpr size_t kScoreSpan = 512;
constexpr size_t kTileProductFloats = 24 * 1024 + 24 * 96 * kLanes;
// kernels/sampling.cpp: threads at most; a candidate and a logit for each token.
constexpr size_t kSamplingThreads = 16;
constexpr size_t kSamplingTokenBytes = 20;
constexpr size_t kSamplingRowBytes = 40;
constexpr size_t kSlotBytes = 40;  // of a sequence: counts, last token, parameters, latest batch
constexpr size_t kRowBytes = 12;   // of a token row: position, slot, id
constexpr size_t kScheduledBytes = 28;  // of a sequence: its number, its owner, a free slot

// Products and sums that say so instead of wrapping: limits come from files.
size_t times(size_t a, size_t b) {
  size_t product = 0;
  if (__builtin_mul_overflow(a, b, &product) || product > (size_t{1} << 60))
    throw input_error("memory: {} x {} bytes are beyond what can be planned", a, b);
  return product;
}

template <class... Rest>
size_t times(size_t a, size_t b, Rest... rest) {
  return times(times(a, b), rest...);
}

size_t round_up(size_t n, size_t to) { return n / to * to + (n % to == 0 ? 0 : to); }

const Stage& stage_of(const Plan& plan, size_t stage) {
  WEFT_EXPECT(!plan.replicas.empty() && stage < plan.replicas.front().stages.size());
  return plan.replicas.front().stages[stage];
}

// Sizes of one rank of a stage.
struct Sizes {
  const ModelSpec& spec;
  const Plan& plan;
  const Stage& stage;
  bool is_first;
  bool is_last;
  size_t h, kv, f, v;

  Sizes(const ModelSpec& model, const Plan& the_plan, size_t index)
      : spec(model), plan(the_plan), stage(stage_of(the_plan, index)) {
    is_first = index == 0;
    is_last = index + 1 == plan.replicas.front().stages.size();
    const ShardShapes shapes = shard_shapes(spec, stage.tp, 0);
    h = shapes.heads.size();
    kv = shapes.kv_heads.size();
    f = shapes.ffn.size();
    v = shapes.vocab.size();
  }
};

// Counts an arena's bytes tensor by tensor.
struct Arena {
  size_t element_bytes;
  size_t bytes = 0;
  void add(bool present, size_t rows, size_t columns) {
    if (present) add_bytes(times(rows, columns, element_bytes));
  }
  void add_bytes(size_t n) { bytes += round_up(n, kAlignment); }
};

size_t layer_bytes(const Sizes& s, size_t element_bytes) {
  const size_t hidden = s.spec.hidden;
  const size_t d = s.spec.head_dim;
  Arena arena{element_bytes};
  arena.add(true, hidden, 1);                           // input_norm
  arena.add(true, (s.h + 2 * s.kv) * d, hidden);        // qkv
  arena.add(s.spec.qkv_bias, (s.h + 2 * s.kv) * d, 1);  // qkv_bias
  arena.add(s.spec.qk_norm, d, 1);                      // q_norm
  arena.add(s.spec.qk_norm, d, 1);                      // k_norm
  arena.add(true, hidden, s.h * d);                     // o
  arena.add(s.spec.o_bias, hidden, 1);                  // o_bias
  arena.add(true, hidden, 1);                           // post_norm
  arena.add(true, 2 * s.f, hidden);                     // gate_up
  arena.add(s.spec.ffn_bias, 2 * s.f, 1);               // gate_up_bias
  arena.add(true, hidden, s.f);                         // down
  arena.add(s.spec.ffn_bias, hidden, 1);                // down_bias
  return arena.bytes;
}

// Scratch of products with that many rows, outputs and inputs at most.
size_t product_bytes(size_t rows, size_t outputs, size_t inputs) {
  return times(rows, round_up(inputs, kLanes) + kProductLanes + outputs, dtype_bytes(DType::f32));
}

// Of a tile: queries, sums and parts of them, scores, a block of values, two numbers a row.
size_t attention_bytes(const Sizes& s) {
  const size_t group = s.h / s.kv;
  const size_t rows = std::max<size_t>(1, kTileRows / group) * group;
  const size_t width = round_up(s.spec.head_dim, kLanes);
  const size_t floats = rows * (3 * width + kScoreSpan) + kKvBlockTokens * width +
                        round_up(2 * rows, kLanes) + kTileProductFloats;
  return times(kAssumedThreads, floats, dtype_bytes(DType::f32));
}

size_t activation_bytes(const Sizes& s) {
  const size_t rows = s.plan.limits.max_batch_tokens;
  const size_t hidden = s.spec.hidden;
  const size_t attended = s.h * s.spec.head_dim;
  const size_t qkv = (s.h + 2 * s.kv) * s.spec.head_dim;
  Arena arena{dtype_bytes(s.plan.formats.activations)};
  arena.add(true, 1, times(rows, hidden) + s.stage.tp);  // residual
  for (size_t columns : {hidden, qkv, attended, 2 * s.f, s.f}) arena.add(true, rows, columns);
  arena.add_bytes(times(rows, hidden, dtype_bytes(DType::f32)));  // partial
  const size_t widest = std::max({qkv, hidden, 2 * s.f});
  const size_t deepest = std::max({hidden, s.f, attended});
  arena.add_bytes(std::max(product_bytes(rows, widest, deepest), attention_bytes(s)));
  return arena.bytes;
}

// The last stage's, from the residual stream to the token.
size_t sampler_bytes(const Sizes& s) {
  const size_t f32 = dtype_bytes(DType::f32);
  const size_t logit_copies = 1 + (s.stage.tp > 1 ? s.stage.tp : 0);
  const size_t row = 2 * s.spec.hidden * dtype_bytes(s.plan.formats.activations) +
                     times(s.v, logit_copies, f32) + s.spec.vocab + kSamplingRowBytes;
  const size_t rows = s.plan.limits.max_sequences;
  return times(rows, row) + product_bytes(rows, s.v, s.spec.hidden) +
         times(kSamplingThreads, round_up(s.spec.vocab, kLanes), kSamplingTokenBytes);
}

// What passes between ranks beside the residual stream, and what rank 0 makes batches from.
size_t control_bytes(const Sizes& s) {
  const Limits& limits = s.plan.limits;
  const size_t ring = limits.batches_in_flight + 1;
  size_t bytes = times(ring + 1, batch_bytes(limits));
  bytes += times(s.is_first || s.is_last ? ring + 1 : 1, result_bytes(limits));
  if (!s.is_first) return bytes;
  bytes += times(limits.kv_blocks, dtype_bytes(DType::i32));
  return bytes + times(limits.max_sequences, kScheduledBytes + 8 * limits.batches_in_flight);
}

// Block tables, and the state of sequences and rows.
size_t slot_bytes(const Sizes& s) {
  const Limits& limits = s.plan.limits;
  const size_t table_row = context_blocks(limits) * dtype_bytes(DType::i32);
  return times(limits.max_sequences, table_row + kSlotBytes) +
         times(limits.max_batch_tokens, kRowBytes);
}

// Parts of a sum from the other ranks (parallel/host_communicator.cpp): small messages come whole.
size_t reduction_bytes(size_t tp, size_t message_bytes) {
  constexpr size_t whole = 8 << 10;
  return std::max((tp - 1) * std::min(whole, message_bytes),
                  message_bytes + tp * dtype_bytes(DType::f32));
}

// A communicator's transfers in flight: 16 exchanges, and one collective operation.
size_t transfer_bytes(size_t n_ranks) {
  return times(16 * std::max<size_t>(64, 4 * n_ranks) + 2 * n_ranks, 64);
}

size_t buffer_bytes(const Sizes& s) {
  const size_t f32 = dtype_bytes(DType::f32);
  const size_t tokens_hidden = times(s.plan.limits.max_batch_tokens, s.spec.hidden);
  size_t bytes = kProcessBytes + control_bytes(s) + slot_bytes(s);
  bytes += transfer_bytes(s.stage.tp) + transfer_bytes(world_size(s.plan));
  if (!s.is_last) bytes += times(2, tokens_hidden, dtype_bytes(s.plan.formats.activations));
  if (s.stage.tp > 1) bytes += reduction_bytes(s.stage.tp, times(tokens_hidden, f32));
  bytes += times(s.plan.limits.context, s.spec.head_dim, f32);
  return s.is_last ? bytes + sampler_bytes(s) : bytes;
}

// kernels/gpu_product.h, gpu_attention.h, gpu_sampling.h, gpu_cublas.h: what their workspaces take.
constexpr size_t kGpuAlignment = 256;
constexpr size_t kCublasBytes = size_t{32} << 20;
constexpr size_t kStreamTokens = 32;                     // rows that no product needs cuBLASLt for
constexpr size_t kNormParts = 1024;                      // sums of squares of a deferred norm
constexpr size_t kDecodeHeaderBytes = size_t{16} << 10;  // at most
constexpr size_t kSpareParts = 1024;
constexpr size_t kShortestRun = 8;  // rows of a sequence that attention takes together
constexpr size_t kSampleRowBytes = 40;
constexpr size_t kSampleCellsBytes = size_t{4096} * 16;  // one a row it can take

size_t gpu_rounded(size_t bytes) { return round_up(bytes, kGpuAlignment); }

size_t gpu_product_bytes(const Sizes& s, size_t rows) {
  const size_t a = dtype_bytes(s.plan.formats.activations);
  const size_t hidden = s.spec.hidden, attended = s.h * s.spec.head_dim;
  const auto product = [&](size_t tokens, size_t n, size_t k) {
    return gpu_rounded(times(tokens, k, a)) + times(tokens, n, a);
  };
  size_t most = std::max({product(rows, (s.h + 2 * s.kv) * s.spec.head_dim, hidden),
                          product(rows, hidden, attended), product(rows, 2 * s.f, hidden),
                          product(rows, hidden, s.f)});
  if (s.is_last) most = std::max(most, product(2 * s.plan.limits.max_sequences, s.v, hidden));
  const bool cublas = s.plan.numerics == Numerics::fast && a < 4 && rows > kStreamTokens;
  return gpu_rounded(most) + (cublas ? kCublasBytes : 0);
}

size_t gpu_attention_bytes(const Sizes& s) {
  const Limits& limits = s.plan.limits;
  const size_t run = kShortestRun - 1;
  const size_t single =
      std::max(std::min(limits.max_batch_tokens, times(limits.max_sequences, run)),
               2 * limits.max_sequences);
  const size_t cached = times(limits.kv_blocks, kKvBlockTokens);
  const size_t positions =
      std::min(times(single, limits.context), times(run, cached) + times(single, kKvBlockTokens));
  const size_t parts = positions / kScoreSpan + 2 * single + kSpareParts;
  return kDecodeHeaderBytes + times(parts, s.h, s.spec.head_dim + 4, dtype_bytes(DType::f32));
}

size_t gpu_activation_bytes(const Sizes& s) {
  const Limits& limits = s.plan.limits;
  const size_t rows = std::max(limits.max_batch_tokens, 2 * limits.max_sequences);
  const size_t a = dtype_bytes(s.plan.formats.activations), f32 = dtype_bytes(DType::f32);
  const size_t d = s.spec.head_dim;
  size_t bytes = gpu_product_bytes(s, rows);
  bytes += gpu_rounded(times(times(rows, s.spec.hidden) + s.stage.tp, a));
  for (const size_t width : {(s.h + 2 * s.kv) * d, s.h * d, s.f})
    bytes += gpu_rounded(times(rows, width, a));
  bytes += gpu_rounded(times(kStreamTokens, s.spec.hidden, a)) +
           gpu_rounded(times(kNormParts, kStreamTokens, f32));
  if (s.stage.tp > 1) bytes += gpu_rounded(times(rows, s.spec.hidden, f32));
  return bytes + gpu_rounded(gpu_attention_bytes(s)) + gpu_rounded(times(limits.context, d, f32));
}

// Arrays of 32-bit numbers, each from a multiple of 16 bytes.
size_t gpu_input_bytes(const Limits& limits) {
  const auto array = [](size_t n, size_t each) { return round_up(times(n, each), 16); };
  const size_t rows = std::max(limits.max_batch_tokens, 2 * limits.max_sequences);
  return 4 * array(rows, 4) + array(2 * limits.max_sequences, 4) +
         array(rows / kShortestRun + 1, 8) + array(most_batch_blocks(limits), 8);
}

size_t gpu_buffer_bytes(const Sizes& s) {
  const Limits& limits = s.plan.limits;
  const size_t a = dtype_bytes(s.plan.formats.activations), f32 = dtype_bytes(DType::f32);
  const size_t sequences = limits.max_sequences;
  size_t bytes = gpu_rounded(gpu_input_bytes(limits)) +
                 gpu_rounded(times(sequences, context_blocks(limits), dtype_bytes(DType::i32)));
  if (!s.is_last) return bytes + gpu_rounded(times(2, limits.max_batch_tokens, s.spec.hidden, a));
  bytes += gpu_rounded(times(2, sequences, s.spec.hidden, a));
  bytes += gpu_rounded(times(2, sequences, s.v, f32));
  if (s.stage.tp > 1) bytes += gpu_rounded(times(2 * s.stage.tp, sequences, s.v, f32));
  bytes += gpu_rounded(times(sequences, kSampleRowBytes));
  bytes += gpu_rounded(times(sequences, s.spec.vocab)) + gpu_rounded(times(sequences, 4));
  return bytes + gpu_rounded(kSampleCellsBytes + times(sequences, s.spec.vocab, f32));
}

}  // namespace

size_t weight_bytes(const ModelSpec& spec, const Plan& plan, size_t stage) {
  if (spec.n_experts != 0)
    throw input_error("memory of mixtures of experts is not planned yet: {} has {} experts",
                      spec.name, spec.n_experts);
  const Sizes s(spec, plan, stage);
  const size_t element_bytes = dtype_bytes(plan.formats.weights);
  Arena arena{element_bytes, times(s.stage.layers.size(), layer_bytes(s, element_bytes))};
  arena.add(s.is_first, s.v, spec.hidden);                                          // embedding
  arena.add(s.is_last, spec.hidden, 1);                                             // final_norm
  arena.add(s.is_last && !(spec.tied_embeddings && s.is_first), s.v, spec.hidden);  // head
  return arena.bytes;
}

size_t kv_block_bytes(const ModelSpec& spec, const Plan& plan, size_t stage) {
  const Sizes s(spec, plan, stage);
  const size_t pair = dtype_bytes(plan.formats.kv_key) + dtype_bytes(plan.formats.kv_value);
  return times(kKvBlockTokens, s.stage.layers.size(), s.kv, spec.head_dim, pair);
}

MemoryParts rank_memory(const ModelSpec& spec, const Plan& plan, size_t stage, Backend backend) {
  const Sizes s(spec, plan, stage);
  const bool on_gpu = backend == Backend::cuda;
  MemoryParts memory;
  memory.weights = weight_bytes(spec, plan, stage);
  memory.kv = times(plan.limits.kv_blocks, kv_block_bytes(spec, plan, stage));
  if (on_gpu) memory.weights = gpu_rounded(memory.weights);
  if (on_gpu) memory.kv = gpu_rounded(memory.kv);
  memory.activations = on_gpu ? gpu_activation_bytes(s) : activation_bytes(s);
  memory.buffers = on_gpu ? gpu_buffer_bytes(s) : buffer_bytes(s);
  return memory;
}

void predict_memory(const ModelSpec& spec, Plan& plan, Backend backend) {
  plan.predicted.rank_memory.clear();
  for (size_t s = 0; s < plan.replicas.front().stages.size(); ++s)
    plan.predicted.rank_memory.push_back(rank_memory(spec, plan, s, backend));
  predict_edges(spec, plan);
}

// The residual stream, each slice of it once: how wide the stages are does not matter.
void predict_edges(const ModelSpec& spec, Plan& plan) {
  const size_t n_stages = plan.replicas.front().stages.size();
  plan.predicted.edge_token_bytes.assign(std::max<size_t>(n_stages, 1) - 1,
                                         spec.hidden * dtype_bytes(plan.formats.activations));
}

std::vector<std::string> memory_problems(const ModelSpec& spec, const Plan& plan,
                                         size_t rank_memory_bytes, Backend backend) {
  std::vector<std::string> found;
  if (plan.replicas.empty() || spec.n_experts != 0) return found;
  // problems() names formats that nothing is stored in yet.
  for (const FormatField& format : kFormatFields)
    if (!is_float(plan.formats.*format.field)) return found;
  const std::vector<Stage>& stages = plan.replicas.front().stages;
  for (size_t s = 0; s < stages.size(); ++s) {
    if (!tp_problem(spec, stages[s].tp, false).empty()) continue;
    const MemoryParts memory = rank_memory(spec, plan, s, backend);
    if (memory.total() > rank_memory_bytes)
      found.push_back(shortage_text(s, memory, rank_memory_bytes));
  }
  return found;
}

std::string shortage_text(size_t stage, const MemoryParts& memory, size_t limit) {
  std::string parts;
  for (const MemoryField& part : kMemoryFields)
    parts += fmt::format("{}{} {}", parts.empty() ? "" : " + ", part.title,
                         gib_text(memory.*part.field));
  return fmt::format("stage {}: short {} GiB: {} of {} GiB", stage,
                     gib_text(memory.total() - limit), parts, gib_text(limit));
}

std::string gib_text(size_t bytes) {
  const double gib = static_cast<double>(bytes) / static_cast<double>(size_t{1} << 30);
  const int decimals = gib >= 10 ? 1 : gib >= 1 ? 2 : gib >= 0.1 ? 3 : 4;
  return fmt::format("{:.{}f}", gib, decimals);
}

}  // namespace weft::planner
