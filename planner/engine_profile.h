// How an engine drives its GPUs: habits that its users can look up (memory fraction, batch limit,
// chunk, arrivals as its figures were measured) and at most 13 numbers fitted to measured rows.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "planner/number_format.h"

namespace weft::planner {

// Fitted by scripts/fit_profile on one half of the shapes; times in microseconds, factors multiply
// the machine profile's time (1 = as measured alone).
struct EngineConstants {
  double step_us = 0;        // of a step of any kind, once
  double layer_us = 0;       // of a layer in a decode step: norms, RoPE, kernel starts
  double sequence_us = 0;    // of a sequence in a decode step: sampling, bookkeeping
  double products = 1;       // of decode products
  double attention = 1;      // of decode attention
  double all_reduce_us = 0;  // of an all-reduce in a decode step: ranks that wait
  double prefill_products = 1;
  double prefill_layer_us = 0;   // least of a layer in a prefill step: the host enqueues kernels
  double experts_idle = 0;       // share of experts without a token that are read all the same
  double experts_bandwidth = 1;  // of the memory rate when experts are read
  double experts_compute = 1;    // of the compute rate over experts' products

  bool operator==(const EngineConstants&) const = default;
};

// Looked up or read off how the rows were taken, never fitted.
struct EngineHabits {
  double memory_fraction = 0.9;  // of a GPU's memory that the engine may fill
  double reserve_gib = 2;        // of it for graphs, libraries, the allocator, beside activations
  NumberFormat kv_of_bf16 = NumberFormat::bf16;  // KV format where nobody asked, by weights
  NumberFormat kv_of_fp8 = NumberFormat::bf16;
  size_t batch_limit = 256;     // sequences at once
  size_t prefill_chunk = 8192;  // prompt tokens of a step
  bool steady = true;           // false: rows were taken in bursts, their TTFT is not scored
  double burst_share = 0;       // of the requests that arrive with all others at once
  double wait_steps = 0;  // prefill steps of others that a request waits for, one after another
  double first_token_steps = 1.5;  // decode steps between arrival and first token beside prefill

  bool operator==(const EngineHabits&) const = default;
};

struct EngineProfile {
  std::string name;
  std::string source;  // what the constants were fitted to
  EngineConstants constants;
  EngineHabits habits;
  // Habits that changed, oldest first: those of the last entry not newer than a version hold.
  std::vector<std::pair<std::string, EngineHabits>> since;

  bool operator==(const EngineProfile&) const = default;
};

const EngineHabits& habits_of(const EngineProfile& engine, std::string_view version);
NumberFormat default_kv(const EngineHabits& habits, NumberFormat weights);

// YAML, version 1. Throws Error with file, line and column.
EngineProfile parse_engine_profile(std::string_view text, const std::string& where);
EngineProfile read_engine_profile(const std::string& path);
// The profile of an engine in a folder of them; throws Error with the known ones.
EngineProfile find_engine_profile(const std::string& folder, const std::string& engine);
std::string to_yaml(const EngineProfile& engine);

}  // namespace weft::planner
