// The plan's plain fields by name and range, once: YAML, JSON, checks and flags walk these tables.
#pragma once

#include <string_view>

#include "planner/plan.h"

namespace weft::planner {

inline constexpr std::string_view kNumericsNames[] = {"fast", "invariant"};
inline constexpr std::string_view kRoleNames[] = {"both", "prefill", "decode"};

inline constexpr size_t kMostPlanLayers = 100'000;
inline constexpr size_t kMostSlots = 1'000'000;
inline constexpr size_t kMostKvBlocks = size_t{1} << 30;

// Positions, rows and block ids are 32-bit at run time, hence the upper bounds.
struct LimitField {
  std::string_view key;
  size_t Limits::*field;
  size_t most;
  std::string_view what;
};
inline constexpr LimitField kLimitFields[] = {
    {"context", &Limits::context, size_t{1} << 30,
     "tokens of one sequence, prompt and output together"},
    {"max_sequences", &Limits::max_sequences, 1'000'000, "sequences that hold KV at once"},
    {"max_batch_tokens", &Limits::max_batch_tokens, size_t{1} << 24, "token rows of one batch"},
    {"prefill_chunk", &Limits::prefill_chunk, size_t{1} << 24,
     "most prompt tokens of a sequence in one batch"},
    {"batches_in_flight", &Limits::batches_in_flight, kMostPlanLayers,
     "batches that the stages work on at once"},
    {"kv_blocks", &Limits::kv_blocks, kMostKvBlocks, "blocks of 64 tokens, on every stage"},
};

struct FormatField {
  std::string_view key;
  DType Formats::*field;
};
inline constexpr FormatField kFormatFields[] = {
    {"weights", &Formats::weights},
    {"activations", &Formats::activations},
    {"kv_key", &Formats::kv_key},
    {"kv_value", &Formats::kv_value},
};

struct MemoryField {
  std::string_view key;
  std::string_view title;
  size_t MemoryParts::*field;
};
inline constexpr MemoryField kMemoryFields[] = {
    {"weights", "weights", &MemoryParts::weights},
    {"kv", "KV", &MemoryParts::kv},
    {"activations", "activations", &MemoryParts::activations},
    {"buffers", "buffers", &MemoryParts::buffers},
};

struct SpeedField {
  std::string_view key;
  double Speed::*field;
  std::string_view what;
};
inline constexpr SpeedField kSpeedFields[] = {
    {"ttft_ms", &Speed::ttft_ms, "time to the first token"},
    {"tpot_ms", &Speed::tpot_ms, "time per output token after it"},
    {"tokens_per_s", &Speed::tokens_per_s, "output tokens of all replicas"},
};

struct StageSpeedField {
  std::string_view key;
  double StageSpeed::*field;
};
inline constexpr StageSpeedField kStageSpeedFields[] = {
    {"prefill_ms", &StageSpeed::prefill_ms},
    {"decode_ms", &StageSpeed::decode_ms},
};

}  // namespace weft::planner
