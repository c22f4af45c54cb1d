// Parameters go out with the launch, results come back by the GPU's own writes to pinned memory.
#include "runtime/gpu_sampler.h"

#include <algorithm>

#include "kernels/gpu_rows.h"
#include "runtime/base/error.h"
#include "runtime/gpu_decoder.h"
#include "runtime/gpu_synthesis.h"

namespace weft::runtime {
namespace {

// Parts of the pinned buffer, each from a multiple of 64 bytes.
class PinnedParts {
 public:
  explicit PinnedParts(std::byte* base) : base_(base) {}
  template <class T>
  T* take(size_t n) {
    auto* part = base_ == nullptr ? nullptr : reinterpret_cast<T*>(base_ + used_);
    used_ += (n * sizeof(T) + 63) / 64 * 64;
    return part;
  }
  size_t used() const { return used_; }

 private:
  std::byte* base_;
  size_t used_ = 0;
};

}  // namespace

GpuSampler::GpuSampler(const DecoderShape& shape, const StageWeights& weights,
                       parallel::Communicator& group, GpuProducts& products,
                       ResultShape result_shape, GpuWait& wait, GpuArena& arena,
                       kernels::Stream& stream, StepClock* clock)
    : shape_(shape),
      weights_(weights),
      group_(group),
      products_(products),
      stream_(stream),
      wait_(wait),
      clock_(clock),
      result_shape_(result_shape),
      shard_vocab_(shape.shard.vocab.size()) {
  const size_t sequences = shape.limits.max_sequences, vocab = shape.spec.vocab;
  const size_t rows = 2 * sequences;  // a graph's rows
  rows_ = arena.take_elements(rows * shape.spec.hidden, shape.formats.activations);
  logits_ = arena.take_of<float>(rows * shard_vocab_);
  if (group.rank() > 0) return;
  const auto n_ranks = static_cast<size_t>(group.size());
  if (n_ranks > 1) gathered_ = arena.take_of<float>(n_ranks * rows * shard_vocab_);
  device_rows_ = arena.take_of<kernels::SampleRow>(sequences);
  seen_ = arena.take_of<uint8_t>(sequences * vocab);
  token_ = arena.take_of<int32_t>(sequences);
  const size_t workspace_bytes = kernels::gpu_sample_workspace_bytes(sequences, vocab);
  workspace_ = arena.take(workspace_bytes);
  if (logits_ == nullptr) return;
  kernels::clear_bytes(workspace_, workspace_bytes, stream.gpu());
  done_.emplace();
  for (int pass = 0; pass < 2; ++pass) {
    PinnedParts parts(pinned_.data());
    host_rows_ = parts.take<kernels::SampleRow>(sequences);
    host_token_ = parts.take<int32_t>(sequences);
    host_bad_ = parts.take<int32_t>(sequences);
    host_logprob_ = parts.take<float>(sequences);
    host_top_token_ = parts.take<int32_t>(sequences * result_shape.n_top);
    host_top_logprob_ = parts.take<float>(sequences * result_shape.n_top);
    if (pass == 0) pinned_ = kernels::PinnedBuffer(parts.used());
  }
  if (result_shape.n_logits > 0) host_logits_.resize(n_ranks * sequences * shard_vocab_);
  transfers_.reserve(n_ranks);
}

// logits = norm(x) · headᵀ, float32.
kernels::GpuProduct GpuSampler::head_product(size_t n) const {
  kernels::GpuProduct args;
  args.x = rows_;
  args.w = weights_.head;
  args.norm_weight = weights_.final_norm;
  args.eps = static_cast<float>(shape_.spec.norm_eps);
  args.y = kernels::Out(logits_);
  args.epilogue = kernels::GpuProduct::kStore;
  args.tokens = n;
  args.n = args.y_stride = shard_vocab_;
  args.k = args.x_stride = shape_.spec.hidden;
  return args;
}

void GpuSampler::head(kernels::In residual, const int32_t* sampled, size_t n) {
  if (n == 0) return;
  mark(clock_, StepPart::head);
  kernels::GpuProduct product = head_product(n);
  if (sampled == nullptr)
    product.x = residual;
  else
    kernels::gpu_gather_rows({residual, sampled, rows_, n, shape_.spec.hidden}, stream_.gpu());
  products_.run(product, stream_.gpu());
}

void GpuSampler::measure_products() {
  const size_t rows = 2 * shape_.limits.max_sequences;
  make_noise_on_gpu(1, rows_.data, rows * shape_.spec.hidden, rows_.dtype, stream_);
  products_.measure(head_product(rows), rows, stream_.gpu());
}

void GpuSampler::sample(const Batch& batch, Slots& slots, TokenResults& results) {
  const size_t n_rows = batch.n_samples();
  if (n_rows > 0 && group_.size() > 1) gather_shards(n_rows);
  if (group_.rank() > 0) return;
  results.batch = batch.id;
  results.resize(n_rows);
  mark(clock_, StepPart::sampling);
  if (n_rows == 0) return wait_.until_idle(stream_.gpu());
  const bool greedy = pack_rows(batch, slots, results);
  draw(n_rows, greedy);
  done_->record(stream_.gpu());
  wait_.until(*done_);
  take(n_rows, slots, results);
}

void GpuSampler::gather_shards(size_t n_rows) {
  using parallel::Transfer;
  mark(clock_, group_.rank() > 0 ? StepPart::send : StepPart::receive);
  const size_t bytes = n_rows * shard_vocab_ * sizeof(float);
  if (group_.rank() > 0) {
    const Transfer mine{Transfer::Kind::send, 0, logits_, bytes};
    group_.exchange({&mine, 1}, stream_);
    return;
  }
  kernels::copy_bytes(gathered_, logits_, bytes, stream_.gpu());
  transfers_.clear();
  for (int peer = 1; peer < group_.size(); ++peer) {
    float* part = gathered_ + static_cast<size_t>(peer) * n_rows * shard_vocab_;
    transfers_.push_back({Transfer::Kind::recv, peer, part, bytes});
  }
  group_.exchange(transfers_, stream_);
}

bool GpuSampler::pack_rows(const Batch& batch, const Slots& slots, TokenResults& results) {
  bool greedy = !result_shape_.logprobs && result_shape_.n_top == 0;
  size_t row = 0;
  for (const BatchEntry& entry : batch.entries) {
    if (!entry.samples) continue;
    const kernels::SamplingParams& params = slots.params(entry.slot);
    uint8_t* seen = nullptr;
    if (params.repetition_penalty != 1.0f) {
      seen = seen_ + row * shape_.spec.vocab;
      kernels::copy_bytes(seen, slots.seen(entry.slot), shape_.spec.vocab, stream_.gpu());
    }
    greedy = greedy && params.temperature == 0 && seen == nullptr;
    host_rows_[row] = {params, entry.output_index, seen};
    results.slot[row++] = entry.slot;
  }
  return greedy;
}

void GpuSampler::draw(size_t n_rows, bool greedy) {
  if (!greedy)
    kernels::copy_bytes(device_rows_, host_rows_, n_rows * sizeof(kernels::SampleRow),
                        stream_.gpu());
  kernels::GpuSample args;
  args.logits = gathered_ != nullptr ? gathered_ : logits_;
  args.n_shards = static_cast<size_t>(group_.size());
  args.rows = n_rows;
  args.shard_vocab = shard_vocab_;
  args.vocab = shape_.spec.vocab;
  args.row = greedy ? nullptr : device_rows_;
  args.token = token_;
  args.token_host = host_token_;
  args.bad = host_bad_;
  args.logprob = result_shape_.logprobs ? host_logprob_ : nullptr;
  args.n_top = result_shape_.n_top;
  args.top_token = host_top_token_;
  args.top_logprob = host_top_logprob_;
  args.workspace = workspace_;
  kernels::gpu_sample(args, stream_.gpu());
}

void GpuSampler::take(size_t n_rows, Slots& slots, TokenResults& results) {
  for (size_t row = 0; row < n_rows; ++row) {
    if (host_bad_[row] >= 0)
      throw run_error(
          "the logit of token {} in row {} of the batch is not finite: the weights are not finite, "
          "or activations in {} overflow (another --dtype would tell)",
          host_bad_[row], row, dtype_name(shape_.formats.activations));
    results.token[row] = host_token_[row];
    slots.set_last(results.slot[row], host_token_[row]);
    slots.mark_seen(results.slot[row], host_token_[row]);
  }
  if (result_shape_.logprobs) std::copy_n(host_logprob_, n_rows, results.logprob.data());
  const size_t n_top = n_rows * result_shape_.n_top;
  std::copy_n(host_top_token_, n_top, results.top_token.data());
  std::copy_n(host_top_logprob_, n_top, results.top_logprob.data());
  if (result_shape_.n_logits > 0) keep_logits(n_rows, results);
}

// Whole rows of logits without the padding of the vocabulary.
void GpuSampler::keep_logits(size_t n_rows, TokenResults& results) {
  const float* logits = gathered_ != nullptr ? gathered_ : logits_;
  const size_t n_floats = static_cast<size_t>(group_.size()) * n_rows * shard_vocab_;
  kernels::copy_bytes(host_logits_.data(), logits, n_floats * sizeof(float), stream_.gpu());
  wait_.until_idle(stream_.gpu());
  for (size_t row = 0; row < n_rows; ++row)
    for (size_t id = 0; id < shape_.spec.vocab; ++id) {
      const size_t shard = id / shard_vocab_;
      results.logits[row * shape_.spec.vocab + id] =
          host_logits_[(shard * n_rows + row) * shard_vocab_ + id % shard_vocab_];
    }
}

}  // namespace weft::runtime
