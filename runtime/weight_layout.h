// Where each tensor of a stage goes in a rank's arena, and which part of it: the one list that
// loading walks.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "planner/plan.h"
#include "planner/shard_shapes.h"
#include "runtime/weights.h"

namespace weft::runtime {

// How a tensor's columns go over tensor-parallel ranks.
enum class ColumnSplit { none, heads, ffn };

struct TensorLoad {
  std::string name;
  planner::Range rows;  // of the checkpoint's tensor; elements, for one dimension
  ColumnSplit split = ColumnSplit::none;
  std::byte* to = nullptr;  // [rows, columns], or [rows, columns of the rank, padding included]
  size_t row_step = 1;      // rows from one of its rows to the next, there
};

// How gate and up rows follow each other in one operand: all gate rows first, or in turn, as the
// GPU's products want them.
enum class GateUpOrder { blocks, interleaved };

// The columns of a split tensor that a rank holds, as the checkpoint counts them, and how many it
// keeps room for.
struct ColumnPart {
  planner::Range columns;
  size_t width = 0;  // >= columns.size(); the rest is padding
};
ColumnPart column_part(const planner::ModelSpec& spec, ColumnSplit split, size_t tp,
                       size_t tp_rank);

// Operands from kMappedBytes on begin where FilePhase says, in bytes beyond a multiple of
// kMapAlign, so that pages of the file which holds rows from `row` of tensor `name` on can lie in
// their place.
inline constexpr size_t kMappedBytes = size_t{1} << 20;
inline constexpr size_t kMapAlign = size_t{2} << 20;  // a huge page: mapped as one where it is one
using FilePhase = std::function<std::optional<size_t>(const std::string& name, size_t row)>;

// Sets every pointer of `weights` into an arena at `base` and lists what to load there. With a null
// base it only counts. Returns the bytes of the arena; each operand starts at a multiple of 64, or
// where `phase` says (then `base` is a multiple of kMapAlign).
size_t lay_out(const planner::ModelSpec& spec, const planner::Plan& plan, size_t stage,
               size_t tp_rank, std::byte* base, StageWeights& weights,
               std::vector<TensorLoad>& loads, GateUpOrder order = GateUpOrder::blocks,
               const FilePhase& phase = {});

}  // namespace weft::runtime
