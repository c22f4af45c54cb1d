// The plan, version 1: the only thing that passes between planner and runtime, which executes it
// literally. YAML on disk, with comments; read back exactly.
#pragma once

#include <array>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "planner/model_spec.h"
#include "planner/shard_shapes.h"

namespace weft::planner {

enum class Numerics { fast, invariant };
enum class Role { both, prefill, decode };

struct Formats {
  DType weights = DType::bf16;
  DType activations = DType::bf16;
  DType kv_key = DType::bf16;
  DType kv_value = DType::bf16;
  bool operator==(const Formats&) const = default;
};

struct Limits {
  size_t context = 0;           // tokens of one sequence, prompt and output together
  size_t max_sequences = 0;     // sequences that hold KV at once
  size_t max_batch_tokens = 0;  // token rows of one batch
  size_t prefill_chunk = 0;     // largest number of prompt tokens of a sequence in one batch
  size_t batches_in_flight = 0;
  size_t kv_blocks = 0;  // blocks of kKvBlockTokens, the same on every stage
  std::vector<size_t> graph_buckets;
  bool operator==(const Limits&) const = default;
};

inline constexpr size_t kKvBlockTokens = 64;

struct Slot {
  size_t node = 0;
  size_t gpu = 0;
  bool operator==(const Slot&) const = default;
};

struct Stage {
  Role role = Role::both;
  Range layers;
  size_t tp = 1;
  size_t dp = 1;
  size_t ep = 1;
  std::vector<Slot> slots;  // tp * dp of them, tensor-parallel rank by rank
  bool operator==(const Stage&) const = default;
};

struct Replica {
  size_t count = 1;
  std::vector<Stage> stages;
  bool operator==(const Replica&) const = default;
};

// Bytes a rank is expected to hold, by part.
struct MemoryParts {
  size_t weights = 0;
  size_t kv = 0;
  size_t activations = 0;
  size_t buffers = 0;  // communication, batches, logits
  size_t total() const { return weights + kv + activations + buffers; }
  bool operator==(const MemoryParts&) const = default;
};

// Times of a stage with the edge that follows it; 0 in a phase that it has no part in.
struct StageSpeed {
  double prefill_ms = 0;  // of a chunk
  double decode_ms = 0;   // of a step of one batch in flight
  bool operator==(const StageSpeed&) const = default;
};

struct Speed {
  double ttft_ms = 0;
  double tpot_ms = 0;
  double tokens_per_s = 0;  // output tokens of all replicas
  std::vector<StageSpeed> stages;
  bool operator==(const Speed&) const = default;
};

struct Predicted {
  std::vector<MemoryParts> rank_memory;  // one a stage: its largest rank
  // Bytes that a token takes from each stage to the next, over all ranks together.
  std::vector<size_t> edge_token_bytes;
  std::optional<Speed> speed;  // of a plan that was searched for
  bool operator==(const Predicted&) const = default;
};

struct Plan {
  std::string model_name;
  std::string facts_sha256;
  std::string cluster;  // name of the cluster, "manual" for a layout given by hand
  Formats formats;
  Numerics numerics = Numerics::invariant;
  Limits limits;
  std::vector<Replica> replicas;
  Predicted predicted;
  bool operator==(const Plan&) const = default;
};

// Ranks of one job: the sum of tp * dp over the stages of the first replica.
size_t world_size(const Plan& plan);
// "4x2,2x2": layers x tp of each stage.
std::string layout_text(const Plan& plan);

std::string to_yaml(const Plan& plan);
// Throws Error with file, line and column (malformed, unknown key, wrong kind, out of range).
Plan parse_plan_yaml(std::string_view text, const std::string& where);
Plan read_plan_yaml(const std::string& path);
// SHA-256 over canonical JSON without `predicted`.
std::string plan_sha256(const Plan& plan);

// Every reason why this plan can't be executed for this model (layers missing or doubled, illegal
// tp, wrong model, dp/ep/roles the runtime does not execute, limits of zero, …), one text each.
std::vector<std::string> problems(const Plan& plan, const ModelSpec& spec);

}  // namespace weft::planner
