// Final norm, head, gather of the vocabulary's shards, and the draw.
#include "runtime/sampler.h"

#include <cstring>
#include <stdexcept>

#include "kernels/gemm.h"
#include "kernels/rms_norm.h"
#include "runtime/base/error.h"

namespace weft::runtime {

Sampler::Sampler(const DecoderShape& shape, const StageWeights& weights,
                 parallel::Communicator& group, kernels::Stream& stream, ResultShape result_shape,
                 StepClock* clock)
    : shape_(shape),
      weights_(weights),
      group_(group),
      stream_(stream),
      result_shape_(result_shape),
      clock_(clock),
      shard_vocab_(shape.shard.vocab.size()) {
  const size_t rows = shape.limits.max_sequences;
  const DType dtype = shape.formats.activations;
  const size_t row_bytes = rows * shape.spec.hidden * dtype_bytes(dtype);
  row_memory_.resize(2 * row_bytes);
  rows_ = {row_memory_.data(), dtype};
  normed_ = {row_memory_.data() + row_bytes, dtype};
  logits_.resize(rows * shard_vocab_);
  gemm_workspace_.resize(kernels::gemm_workspace_floats(rows, shard_vocab_, shape.spec.hidden));
  if (group.rank() > 0) return;
  const auto n_ranks = static_cast<size_t>(group.size());
  if (n_ranks > 1) gathered_.resize(n_ranks * rows * shard_vocab_);
  sample_workspace_.resize(
      kernels::sample_workspace_bytes(shape.spec.vocab, stream.pool().n_threads()));
  sample_rows_.reserve(rows);
  transfers_.reserve(n_ranks);
}

void Sampler::sample(const Batch& batch, kernels::In residual, Slots& slots,
                     TokenResults& results) {
  mark(clock_, StepPart::head);
  const size_t n_rows = gather_rows(batch, residual);
  if (n_rows > 0) {
    head(n_rows);
    if (group_.size() > 1) gather_shards(n_rows);
  }
  if (group_.rank() > 0) return;
  results.batch = batch.id;
  results.resize(n_rows);
  mark(clock_, StepPart::sampling);
  if (n_rows > 0) draw(batch, slots, results);
}

// Copies the rows that are sampled side by side; returns their number.
size_t Sampler::gather_rows(const Batch& batch, kernels::In residual) {
  const size_t row_bytes = shape_.spec.hidden * dtype_bytes(residual.dtype);
  const auto* from = static_cast<const std::byte*>(residual.data);
  auto* to = static_cast<std::byte*>(rows_.data);
  size_t end = 0, n = 0;
  for (const BatchEntry& entry : batch.entries) {
    end += static_cast<size_t>(entry.n_rows);
    if (entry.samples) std::memcpy(to + n++ * row_bytes, from + (end - 1) * row_bytes, row_bytes);
  }
  return n;
}

// logits = norm(x) · headᵀ, float32.
void Sampler::head(size_t n_rows) {
  const size_t hidden = shape_.spec.hidden;
  kernels::RmsNorm norm;
  norm.x = rows_;
  norm.weight = weights_.final_norm;
  norm.y = normed_;
  norm.tokens = n_rows;
  norm.width = norm.x_stride = norm.y_stride = hidden;
  norm.eps = static_cast<float>(shape_.spec.norm_eps);
  kernels::rms_norm<>(norm, stream_);

  kernels::Gemm args;
  args.x = normed_;
  args.w = weights_.head;
  args.y = kernels::Out(logits_.data());
  args.tokens = n_rows;
  args.n = args.y_stride = shard_vocab_;
  args.k = args.x_stride = hidden;
  args.invariant = shape_.invariant;
  args.workspace = gemm_workspace_.data();
  kernels::gemm<>(args, stream_);
}

void Sampler::gather_shards(size_t n_rows) {
  using parallel::Transfer;
  mark(clock_, group_.rank() > 0 ? StepPart::send : StepPart::receive);
  const size_t bytes = n_rows * shard_vocab_ * sizeof(float);
  if (group_.rank() > 0) {
    const Transfer mine{Transfer::Kind::send, 0, logits_.data(), bytes};
    group_.exchange({&mine, 1}, stream_);
    return;
  }
  std::memcpy(gathered_.data(), logits_.data(), bytes);
  transfers_.clear();
  for (int peer = 1; peer < group_.size(); ++peer) {
    float* part = gathered_.data() + static_cast<size_t>(peer) * n_rows * shard_vocab_;
    transfers_.push_back({Transfer::Kind::recv, peer, part, bytes});
  }
  group_.exchange(transfers_, stream_);
}

void Sampler::draw(const Batch& batch, Slots& slots, TokenResults& results) {
  sample_rows_.clear();
  size_t row = 0;
  for (const BatchEntry& entry : batch.entries) {
    if (!entry.samples) continue;
    const kernels::SamplingParams& params = slots.params(entry.slot);
    const bool penalised = params.repetition_penalty != 1.0f;
    sample_rows_.push_back(
        {params, entry.output_index, penalised ? slots.seen(entry.slot) : nullptr});
    results.slot[row++] = entry.slot;
  }
  kernels::Sample args;
  args.logits = gathered_.empty() ? logits_.data() : gathered_.data();
  args.n_shards = static_cast<size_t>(group_.size());
  args.rows = row;
  args.shard_vocab = shard_vocab_;
  args.vocab = shape_.spec.vocab;
  args.row = sample_rows_.data();
  args.token = results.token.data();
  args.logprob = result_shape_.logprobs ? results.logprob.data() : nullptr;
  args.n_top = result_shape_.n_top;
  args.top_token = results.top_token.data();
  args.top_logprob = results.top_logprob.data();
  args.workspace = sample_workspace_.data();
  try {
    kernels::sample(args, stream_);
  } catch (const std::domain_error& error) {
    throw run_error(
        "{}: the weights are not finite, or activations in {} overflow (another --dtype would "
        "tell)",
        error.what(), dtype_name(shape_.formats.activations));
  }
  if (result_shape_.n_logits > 0) keep_logits(row, results);
  for (size_t i = 0; i < row; ++i) {
    slots.set_last(results.slot[i], results.token[i]);
    slots.mark_seen(results.slot[i], results.token[i]);
  }
}

// Whole rows of logits without the padding of the vocabulary.
void Sampler::keep_logits(size_t n_rows, TokenResults& results) const {
  const float* logits = gathered_.empty() ? logits_.data() : gathered_.data();
  for (size_t row = 0; row < n_rows; ++row)
    for (size_t id = 0; id < shape_.spec.vocab; ++id) {
      const size_t shard = id / shard_vocab_;
      results.logits[row * shape_.spec.vocab + id] =
          logits[(shard * n_rows + row) * shard_vocab_ + id % shard_vocab_];
    }
}

}  // namespace weft::runtime
