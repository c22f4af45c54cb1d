// Which part of every tensor a tensor-parallel rank holds: the one place that knows the arithmetic.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "planner/model_spec.h"

namespace weft::planner {

// Half-open range.
struct Range {
  size_t begin = 0;
  size_t end = 0;
  size_t size() const { return end - begin; }
  bool operator==(const Range&) const = default;
};

// C: a dimension that tensor parallelism splits is summed in C fixed chunks in invariant mode: the
// largest power of two <= 8 that divides n_heads. From the model alone, so every layout agrees.
size_t n_chunks(const ModelSpec& spec);

// tp is legal when it divides n_heads, and divides n_kv_heads or is a multiple of it. In ascending
// order, e.g. 33B: 1 2 4 8 56.
std::vector<size_t> legal_tp(const ModelSpec& spec);

// Why tp can't be, with the numbers and the legal values; empty where it can. Invariant numerics
// also ask that tp divide n_chunks.
std::string tp_problem(const ModelSpec& spec, size_t tp, bool invariant);

// FFN width over all ranks: padded to 16 * lcm(C, tp), so equal for every tp that divides C.
size_t padded_ffn(const ModelSpec& spec, size_t tp);
// Vocabulary rows over all ranks: padded to 16 * tp.
size_t padded_vocab(const ModelSpec& spec, size_t tp);

// What rank `rank` of `tp` holds, all legal by tp_problem. Padded rows and columns are zero.
struct ShardShapes {
  size_t tp = 1;
  size_t rank = 0;
  Range heads;          // query heads
  Range kv_heads;       // key/value heads; with tp > n_kv_heads several ranks hold the same one
  Range ffn;            // of padded_ffn
  Range vocab;          // of padded_vocab
  size_t n_chunks = 1;  // chunks of a split dimension inside this rank: C / tp, or 1 if C < tp

  bool operator==(const ShardShapes&) const = default;
};
ShardShapes shard_shapes(const ModelSpec& spec, size_t tp, size_t rank);

}  // namespace weft::planner
