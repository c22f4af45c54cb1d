// The end of the last stage on a GPU: final norm, head and one token for each sampled row.
#pragma once

#include <optional>
#include <vector>

#include "kernels/gpu_sampling.h"
#include "parallel/communicator.h"
#include "runtime/batch.h"
#include "runtime/decoder.h"
#include "runtime/gpu_arena.h"
#include "runtime/gpu_products.h"
#include "runtime/gpu_wait.h"
#include "runtime/slots.h"
#include "runtime/step_clock.h"
#include "runtime/token_results.h"
#include "runtime/weights.h"

namespace weft::runtime {

// Every rank of the last stage computes its shard of the vocabulary; rank 0 of the group gathers
// the shards and samples.
class GpuSampler {
 public:
  // Takes its memory from `arena`; with one that only counts nothing else is done.
  GpuSampler(const DecoderShape& shape, const StageWeights& weights, parallel::Communicator& group,
             GpuProducts& products, ResultShape result_shape, GpuWait& wait, GpuArena& arena,
             kernels::Stream& stream, StepClock* clock = nullptr);

  // Logits of n rows of the residual stream, which `sampled` [n] names on the GPU, or of the first
  // n where it is null; rows of padding (−1) give some logits too. Can be captured.
  void head(kernels::In residual, const int32_t* sampled, size_t n);

  // Times the head's product.
  void measure_products();

  // Samples the batch's rows, the first of those that head() was given. Fills `results` on rank 0
  // of the group, once the GPU is done; the slots there learn the tokens.
  void sample(const Batch& batch, Slots& slots, TokenResults& results);

 private:
  kernels::GpuProduct head_product(size_t n) const;
  void gather_shards(size_t n_rows);
  // True where all rows take the largest logit and nothing else is asked for.
  bool pack_rows(const Batch& batch, const Slots& slots, TokenResults& results);
  void draw(size_t n_rows, bool greedy);
  void take(size_t n_rows, Slots& slots, TokenResults& results);
  void keep_logits(size_t n_rows, TokenResults& results);

  DecoderShape shape_;
  const StageWeights& weights_;
  parallel::Communicator& group_;
  GpuProducts& products_;
  kernels::Stream& stream_;
  GpuWait& wait_;
  StepClock* clock_;
  ResultShape result_shape_;
  size_t shard_vocab_;
  kernels::Out rows_;                          // [2 max_sequences, hidden]
  float* logits_ = nullptr;                    // [2 max_sequences, shard_vocab]
  float* gathered_ = nullptr;                  // [tp, rows, shard_vocab] on rank 0 of a wider group
  kernels::SampleRow* device_rows_ = nullptr;  // [max_sequences]
  uint8_t* seen_ = nullptr;                    // [max_sequences, vocab]
  int32_t* token_ = nullptr;                   // [max_sequences]
  std::byte* workspace_ = nullptr;
  // Pinned: parameters there, results back.
  kernels::PinnedBuffer pinned_;
  kernels::SampleRow* host_rows_ = nullptr;
  int32_t* host_token_ = nullptr;
  int32_t* host_bad_ = nullptr;
  float* host_logprob_ = nullptr;
  int32_t* host_top_token_ = nullptr;
  float* host_top_logprob_ = nullptr;
  std::optional<kernels::GpuEvent> done_;
  std::vector<float> host_logits_;  // [tp, max_sequences, shard_vocab] where rows are kept
  std::vector<parallel::Transfer> transfers_;
};

}  // namespace weft::runtime
