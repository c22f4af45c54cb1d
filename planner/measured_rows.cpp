#include "planner/measured_rows.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <variant>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/text.h"

namespace weft::planner {
namespace {

constexpr size_t kMostRowsBytes = size_t{64} << 20;
constexpr size_t kMostCount = 1'000'000'000;
constexpr size_t kMostGpus = 1'000'000;
constexpr double kLeastMs = 1e-6, kMostMs = 1e12;

struct Column {
  std::string_view name;
  std::variant<std::string MeasuredRow::*, size_t MeasuredRow::*, double MeasuredRow::*,
               NumberFormat MeasuredRow::*>
      field;
};
const Column kColumns[] = {
    {"model", &MeasuredRow::model},
    {"gpu", &MeasuredRow::gpu},
    {"engine", &MeasuredRow::engine},
    {"engine_version", &MeasuredRow::engine_version},
    {"weights", &MeasuredRow::weights},
    {"prompt_tokens", &MeasuredRow::prompt_tokens},
    {"output_tokens", &MeasuredRow::output_tokens},
    {"concurrency", &MeasuredRow::concurrency},
    {"tp", &MeasuredRow::tp},
    {"pp", &MeasuredRow::pp},
    {"attention_dp", &MeasuredRow::attention_dp},
    {"moe_tp", &MeasuredRow::moe_tp},
    {"moe_ep", &MeasuredRow::moe_ep},
    {"ttft_ms", &MeasuredRow::ttft_ms},
    {"tpot_ms", &MeasuredRow::tpot_ms},
};

void read_cell(const std::string& text, std::string& to) { to = text; }

void read_cell(const std::string& text, size_t& to) {
  size_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, bad] = std::from_chars(text.data(), end, value);
  if (bad != std::errc() || stop != end || value > kMostCount)
    throw input_error("\"{}\" is not a whole number from 0 to {}", text, kMostCount);
  to = value;
}

void read_cell(const std::string& text, double& to) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, bad] = std::from_chars(text.data(), end, value);
  if (bad != std::errc() || stop != end || !std::isfinite(value) || value <= 0)
    throw input_error("\"{}\" is not a number above 0", text);
  if (value < kLeastMs || value > kMostMs)
    throw input_error("{} is not from {} to {}", text, kLeastMs, kMostMs);
  to = value;
}

void read_cell(const std::string& text, NumberFormat& to) {
  const auto found = std::find(std::begin(kNumberFormatNames), std::end(kNumberFormatNames), text);
  if (found == std::end(kNumberFormatNames))
    throw input_error("\"{}\" is none of {}", text, fmt::join(kNumberFormatNames, ", "));
  to = static_cast<NumberFormat>(found - std::begin(kNumberFormatNames));
}

std::vector<const Column*> read_header(const std::vector<std::string>& names) {
  std::vector<std::string_view> known;
  for (const Column& column : kColumns) known.push_back(column.name);
  std::vector<const Column*> columns;
  for (const std::string& name : names) {
    const auto found = std::find(known.begin(), known.end(), name);
    if (found == known.end())
      throw input_error("unknown column \"{}\"{}", name, did_you_mean(name, known));
    const Column* column = kColumns + (found - known.begin());
    if (std::find(columns.begin(), columns.end(), column) != columns.end())
      throw input_error("column \"{}\" is there twice", name);
    columns.push_back(column);
  }
  for (const Column& column : kColumns)
    if (std::find(columns.begin(), columns.end(), &column) == columns.end())
      throw input_error("column \"{}\" is missing", column.name);
  return columns;
}

void check_row(MeasuredRow& row) {
  const auto positive = [](const char* name, size_t value) {
    if (value == 0) throw input_error("{}: 0 is not above 0", name);
  };
  positive("prompt_tokens", row.prompt_tokens);
  positive("output_tokens", row.output_tokens);
  positive("concurrency", row.concurrency);
  positive("tp", row.tp);
  positive("pp", row.pp);
  positive("attention_dp", row.attention_dp);
  // Each of them first: their product is one of three counts up to a billion.
  if (std::max({row.tp, row.pp, row.attention_dp}) > kMostGpus || gpus_of(row) > kMostGpus)
    throw input_error("tp {}, pp {} and attention_dp {} are more than {} GPUs", row.tp, row.pp,
                      row.attention_dp, kMostGpus);
  row.moe_tp = std::max<size_t>(1, row.moe_tp);
  row.moe_ep = std::max<size_t>(1, row.moe_ep);
}

MeasuredRow read_row(const std::vector<std::string>& cells,
                     const std::vector<const Column*>& columns) {
  if (cells.size() != columns.size())
    throw input_error("has {} values, not {}", cells.size(), columns.size());
  MeasuredRow row;
  for (size_t i = 0; i < cells.size(); ++i) try {
      std::visit([&](auto field) { read_cell(cells[i], row.*field); }, columns[i]->field);
    } catch (const Error& error) {
      throw input_error("{}: {}", columns[i]->name, error.what());
    }
  check_row(row);
  return row;
}

}  // namespace

size_t gpus_of(const MeasuredRow& row) { return row.tp * row.pp * row.attention_dp; }

double tokens_per_s(const MeasuredRow& row) {
  const double n = static_cast<double>(row.output_tokens);
  const double request_ms = row.ttft_ms + (n - 1) * row.tpot_ms;
  return static_cast<double>(row.concurrency) * n / request_ms * 1000;
}

std::vector<MeasuredRow> parse_measured_rows(std::string_view text, const std::string& where) {
  std::vector<MeasuredRow> rows;
  std::vector<const Column*> columns;
  size_t line = 0;
  for (std::string& content : split(text, '\n')) {
    ++line;
    if (!content.empty() && content.back() == '\r') content.pop_back();
    if (content.empty()) continue;
    try {
      const std::vector<std::string> cells = split(content, ',');
      if (columns.empty()) {
        columns = read_header(cells);
        continue;
      }
      rows.push_back(read_row(cells, columns));
      rows.back().line = line;
    } catch (const Error& error) {
      throw input_error("{}:{}: {}", where, line, error.what());
    }
  }
  if (rows.empty()) throw input_error("{}: holds no rows", where);
  return rows;
}

std::vector<MeasuredRow> read_measured_rows(const std::string& path) {
  return parse_measured_rows(read_text(path, kMostRowsBytes), path);
}

}  // namespace weft::planner
