// What the engine allocates on one rank, term by term. T max_batch_tokens, S max_sequences; h, kv,
// f, v a rank's query heads, KV heads, padded FFN columns, padded vocabulary rows; d head_dim;
// a, w the bytes of an activation and of a weight.
//
//   weights      the tensors of runtime/weights.h, each from a multiple of 64 bytes, in w
//   KV           kv_blocks blocks of [layers, key|value, kv, 64, d]
//   activations  residual       [T, hidden] + tp   a
//                normed         [T, hidden]        a
//                qkv            [T, (h + 2 kv) d]  a
//                attended       [T, h d]           a
//                gate_up        [T, 2 f]           a
//                gated          [T, f]             a
//                partial        [T, hidden]        f32
//                products       [T, widest + deepest + 128] f32, of all products of a layer the
//                               most outputs and the most inputs (the CPU backend's scratch)
//   buffers      edge           2 x [T, hidden]    a, where a stage follows
//                reduction      [T, hidden]        f32, where tp > 1
//                RoPE table     [context, d / 2, 2] f32
//                block table    [S, context / 64]  i32
//                batches        batches_in_flight + 1, 64 bytes a row
//                sampled rows   2 x [S, hidden]    a, last stage
//                logits         [S, v]             f32, last stage
//                all logits     [S, tp v]          f32, last stage where tp > 1
//                head's product [S, hidden + v + 128] f32, last stage
//                seen ids       [S, vocab]         bytes, last stage
//                workspaces     32 MiB for what the kernels and the messages need besides
//
// Ranks of a stage hold the same, since shards are padded to equal sizes; of the last stage rank 0
// alone holds all logits and seen ids, and is the one that counts.
#include "planner/memory_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "planner/plan_fields.h"
#include "runtime/base/error.h"

namespace weft::planner {
namespace {

constexpr size_t kAlignment = 64;
constexpr size_t kBatchRowBytes = 64;
constexpr size_t kProductLanes = 128;  // 8 chunks of 16 lanes
constexpr size_t kWorkspaceBytes = size_t{32} << 20;

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

size_t divide_up(size_t n, size_t by) { return n / by + (n % by == 0 ? 0 : 1); }

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
    if (present) bytes += divide_up(times(rows, columns, element_bytes), kAlignment) * kAlignment;
  }
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
  return times(rows, outputs + inputs + kProductLanes, dtype_bytes(DType::f32));
}

size_t activation_bytes(const Sizes& s) {
  const size_t rows = s.plan.limits.max_batch_tokens;
  const size_t hidden = s.spec.hidden;
  const size_t attended = s.h * s.spec.head_dim;
  const size_t qkv = (s.h + 2 * s.kv) * s.spec.head_dim;
  const size_t columns = 2 * hidden + qkv + attended + 3 * s.f;
  const size_t row =
      columns * dtype_bytes(s.plan.formats.activations) + hidden * dtype_bytes(DType::f32);
  const size_t edge_padding = s.stage.tp * dtype_bytes(s.plan.formats.activations);
  return times(rows, row) + edge_padding +
         product_bytes(rows, std::max({qkv, hidden, 2 * s.f}), std::max({hidden, s.f, attended}));
}

// The last stage's, from the residual stream to the token.
size_t sampler_bytes(const Sizes& s) {
  const size_t f32 = dtype_bytes(DType::f32);
  const size_t logit_copies = 1 + (s.stage.tp > 1 ? s.stage.tp : 0);
  const size_t row = 2 * s.spec.hidden * dtype_bytes(s.plan.formats.activations) +
                     times(s.v, logit_copies, f32) + s.spec.vocab;
  const size_t rows = s.plan.limits.max_sequences;
  return times(rows, row) + product_bytes(rows, s.v, s.spec.hidden);
}

size_t buffer_bytes(const Sizes& s) {
  const Limits& limits = s.plan.limits;
  const size_t f32 = dtype_bytes(DType::f32);
  const size_t tokens_hidden = times(limits.max_batch_tokens, s.spec.hidden);
  size_t bytes = kWorkspaceBytes;
  if (!s.is_last) bytes += times(2, tokens_hidden, dtype_bytes(s.plan.formats.activations));
  if (s.stage.tp > 1) bytes += times(tokens_hidden, f32);
  bytes += times(limits.context, s.spec.head_dim, f32);
  bytes += times(limits.max_sequences, divide_up(limits.context, kKvBlockTokens),
                 dtype_bytes(DType::i32));
  bytes += times(limits.batches_in_flight + 1, limits.max_batch_tokens, kBatchRowBytes);
  return s.is_last ? bytes + sampler_bytes(s) : bytes;
}

std::string shortage(size_t stage, const MemoryParts& memory, size_t limit) {
  std::string parts;
  for (const MemoryField& part : kMemoryFields)
    parts += fmt::format("{}{} {}", parts.empty() ? "" : " + ", part.title,
                         gib_text(memory.*part.field));
  return fmt::format("stage {}: short {} GiB: {} of {} GiB", stage,
                     gib_text(memory.total() - limit), parts, gib_text(limit));
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

MemoryParts rank_memory(const ModelSpec& spec, const Plan& plan, size_t stage) {
  const Sizes s(spec, plan, stage);
  MemoryParts memory;
  memory.weights = weight_bytes(spec, plan, stage);
  memory.kv = times(plan.limits.kv_blocks, kv_block_bytes(spec, plan, stage));
  memory.activations = activation_bytes(s);
  memory.buffers = buffer_bytes(s);
  return memory;
}

void predict_memory(const ModelSpec& spec, Plan& plan) {
  plan.predicted.rank_memory.clear();
  for (size_t s = 0; s < plan.replicas.front().stages.size(); ++s)
    plan.predicted.rank_memory.push_back(rank_memory(spec, plan, s));
}

std::vector<std::string> memory_problems(const ModelSpec& spec, const Plan& plan,
                                         size_t rank_memory_bytes) {
  std::vector<std::string> found;
  if (plan.replicas.empty() || spec.n_experts != 0) return found;
  const std::vector<Stage>& stages = plan.replicas.front().stages;
  for (size_t s = 0; s < stages.size(); ++s) {
    if (!tp_problem(spec, stages[s].tp, false).empty()) continue;
    const MemoryParts memory = rank_memory(spec, plan, s);
    if (memory.total() > rank_memory_bytes) found.push_back(shortage(s, memory, rank_memory_bytes));
  }
  return found;
}

std::string gib_text(size_t bytes) {
  const double gib = static_cast<double>(bytes) / static_cast<double>(size_t{1} << 30);
  const int decimals = gib >= 10 ? 1 : gib >= 1 ? 2 : gib >= 0.1 ? 3 : 4;
  return fmt::format("{:.{}f}", gib, decimals);
}

}  // namespace weft::planner
