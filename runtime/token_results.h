// What the last stage found for one batch: a token for each sampled row, and what was asked beside.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace weft::runtime {

// How much a result carries beside its token; the same for all results of a run.
struct ResultShape {
  bool logprobs = false;  // log-probability of each token
  size_t n_top = 0;       // most likely tokens with their log-probabilities
  size_t n_logits = 0;    // vocabulary, where whole rows of logits are wanted; else 0
};

struct TokenResults {
  uint64_t batch = 0;  // id
  ResultShape shape;
  std::vector<int32_t> slot;       // [n]
  std::vector<int32_t> token;      // [n]
  std::vector<float> logprob;      // [n]
  std::vector<int32_t> top_token;  // [n, n_top]
  std::vector<float> top_logprob;  // [n, n_top]
  std::vector<float> logits;       // [n, n_logits]

  void reserve(size_t max_rows, ResultShape wanted);
  void resize(size_t n);
  size_t size() const { return slot.size(); }

  static size_t max_bytes(size_t max_rows, ResultShape shape);
  size_t encode(std::span<std::byte> to) const;
  void decode(std::span<const std::byte> from);
};

}  // namespace weft::runtime
