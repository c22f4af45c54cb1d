// Measured serving rows as CSV: one workload on one layout of one engine a line.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "planner/number_format.h"

namespace weft::planner {

struct MeasuredRow {
  size_t line = 0;  // of the file, from 1
  std::string model;
  std::string gpu;
  std::string engine;
  std::string engine_version;  // "" = not recorded
  NumberFormat weights = NumberFormat::bf16;
  size_t prompt_tokens = 0;
  size_t output_tokens = 0;
  size_t concurrency = 0;
  size_t tp = 1;
  size_t pp = 1;
  size_t attention_dp = 1;
  size_t moe_tp = 1;  // of dense models nothing follows from these two; 0 is read as 1
  size_t moe_ep = 1;
  double ttft_ms = 0;
  double tpot_ms = 0;
};

// GPUs of the layout, and output tokens a second as measured in a closed loop.
size_t gpus_of(const MeasuredRow& row);
double tokens_per_s(const MeasuredRow& row);

// The first line names the columns, in any order. Throws Error "where:line: column: what" for a
// missing or unknown column, a number out of range, or a line of another length.
std::vector<MeasuredRow> parse_measured_rows(std::string_view text, const std::string& where);
std::vector<MeasuredRow> read_measured_rows(const std::string& path);

}  // namespace weft::planner
