// One token for each row of logits: greedy, or Gumbel-max over the tokens that temperature, top-k
// and top-p leave, with noise that depends on (seed, output index, token id) alone.
#pragma once

#include <cstdint>

#include "kernels/device.h"
#include "kernels/tensor.h"

namespace weft::kernels {

struct SamplingParams {
  float temperature = 0;         // 0 = greedy
  int32_t top_k = 0;             // 0 = all
  float top_p = 1;               // (0, 1]
  float repetition_penalty = 1;  // > 0; divides positive and multiplies negative logits of seen ids
  uint64_t seed = 0;
};

struct SampleRow {
  SamplingParams params;
  uint32_t output_index = 0;      // tokens this sequence has put out before
  const uint8_t* seen = nullptr;  // [vocab] non-zero where the id occurred; null without penalty
};

// Order: repetition penalty, temperature, top-k (ties at the k-th stay in), top-p (smallest set of
// highest probability that reaches p; at least one), then argmax of logit / temperature + Gumbel
// noise from Philox4x32-10 (Salmon et al., "Parallel Random Numbers", 2011); ties go to the lowest
// id. Probabilities are summed for top-p as multiples of 2^-40, so that no order of summation
// shows; noise is defined in kernels/gumbel.h. Log-probabilities are of the raw logits (before
// penalty and temperature), by a log-sum-exp over fixed chunks of 1,024 ids. Logits that are
// NaN or infinite throw std::domain_error naming the row; minus infinity is never drawn.
struct Sample {
  const float* logits = nullptr;  // [n_shards, rows, shard_vocab]; ids >= vocab are padding
  size_t n_shards = 1;
  size_t rows = 0;
  size_t shard_vocab = 0;
  size_t vocab = 0;
  const SampleRow* row = nullptr;  // [rows]
  int32_t* token = nullptr;        // [rows]
  float* logprob = nullptr;        // [rows] of the token, or null
  size_t n_top = 0;                // most likely tokens to report
  int32_t* top_token = nullptr;    // [rows, n_top]
  float* top_logprob = nullptr;    // [rows, n_top]
  // sample_workspace_bytes(vocab, n_threads) bytes, 16-byte aligned.
  std::byte* workspace = nullptr;
};

// 20 bytes a token of the vocabulary for each of at most 16 threads.
size_t sample_workspace_bytes(size_t vocab, size_t n_threads);

void sample(const Sample& args, Stream& stream);

// The four 32-bit words of Philox4x32-10 for a key and a counter; public for tests and synthetic
// weights.
struct Philox {
  uint32_t word[4];
};
Philox philox4x32(uint64_t key, uint64_t counter_low, uint64_t counter_high);

}  // namespace weft::kernels
