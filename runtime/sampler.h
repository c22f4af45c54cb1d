// The end of the last stage: final norm, head and one token for each sampled row.
#pragma once

#include <cstddef>
#include <vector>

#include "kernels/sampling.h"
#include "parallel/communicator.h"
#include "runtime/batch.h"
#include "runtime/decoder.h"
#include "runtime/slots.h"
#include "runtime/step_clock.h"
#include "runtime/token_results.h"

namespace weft::runtime {

// Every rank of the last stage computes its shard of the vocabulary; rank 0 of the group gathers
// the shards and samples, so that the same logits meet the same sampler at any layout.
class Sampler {
 public:
  Sampler(const DecoderShape& shape, const StageWeights& weights, parallel::Communicator& group,
          kernels::Stream& stream, ResultShape result_shape, StepClock* clock = nullptr);

  // Samples the last rows of the batch's sampling entries from residual [rows, hidden]. Fills
  // `results` on rank 0 of the group; the slots there learn the tokens.
  void sample(const Batch& batch, kernels::In residual, Slots& slots, TokenResults& results);

 private:
  size_t gather_rows(const Batch& batch, kernels::In residual);
  void head(size_t n_rows);
  void gather_shards(size_t n_rows);
  void draw(const Batch& batch, Slots& slots, TokenResults& results);
  void keep_logits(size_t n_rows, TokenResults& results) const;

  DecoderShape shape_;
  const StageWeights& weights_;
  parallel::Communicator& group_;
  kernels::Stream& stream_;
  ResultShape result_shape_;
  StepClock* clock_;
  size_t shard_vocab_;
  kernels::Out rows_;    // [max_sequences, hidden]
  kernels::Out normed_;  // [max_sequences, hidden]
  std::vector<std::byte> row_memory_;
  std::vector<float> logits_;    // [max_sequences, shard_vocab]
  std::vector<float> gathered_;  // [tp, rows, shard_vocab] on rank 0 of a wider group
  std::vector<float> gemm_workspace_;
  std::vector<std::byte> sample_workspace_;
  std::vector<kernels::SampleRow> sample_rows_;  // [max_sequences]
  std::vector<parallel::Transfer> transfers_;
};

}  // namespace weft::runtime
