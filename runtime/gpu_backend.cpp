// A step on the GPU: inputs go out in one copy, the layers run as a graph or kernel by kernel, and
// the host waits for tokens alone.
#include "runtime/gpu_backend.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/gpu_decoder.h"
#include "runtime/gpu_graphs.h"
#include "runtime/gpu_sampler.h"
#include "runtime/gpu_step_inputs.h"
#include "runtime/gpu_wait.h"
#include "runtime/gpu_weights.h"
#include "runtime/stage_edges.h"

namespace weft::runtime {
namespace {

size_t cache_bytes(const DecoderShape& shape) {
  return KvCache::bytes(shape.formats, shape.limits.kv_blocks, shape.layers.size(),
                        shape.shard.kv_heads.size(), shape.spec.head_dim);
}

std::byte* cleared_cache(const DecoderShape& shape, GpuArena& arena, kernels::Stream& stream) {
  std::byte* memory = arena.take(cache_bytes(shape));
  kernels::clear_bytes(memory, cache_bytes(shape), stream.gpu());
  return memory;
}

bool has_failed(parallel::Communicator& group) {
  try {
    group.poll();
    return false;
  } catch (const Error&) {
    return true;
  }
}

class GpuBackend final : public StageBackend {
 public:
  GpuBackend(const RankPlace& place, const DecoderShape& shape, const StageWeights& weights,
             const BackendLinks& links, kernels::Stream& stream, ResultShape result_shape,
             GpuArena& arena, bool graphs);

  std::string measure() override;
  void prepare(std::string_view choices) override;

  void embed(std::span<const int32_t> ids) override { ids_ = ids; }
  void receive(size_t tokens) override {
    edges_.receive(decoder_.residual(), tokens * shape_.spec.hidden);
  }
  void forward(const Batch& batch, const Slots& slots) override;
  void sample(const Batch& batch, Slots& slots, TokenResults& results) override {
    sampler_->sample(batch, slots, results);
  }
  void send(size_t tokens) override {
    edges_.send(decoder_.residual(), tokens * shape_.spec.hidden);
  }
  void finish() override {
    edges_.finish();
    wait_.until_idle(stream_.gpu());
    graphs_ = {};  // before the communicators that they have recorded
  }

 private:
  void capture();
  GpuPass eager_pass(StepRoom room) const;
  GpuPass graph_pass(const GraphBucket& bucket) const;
  void run(const GpuPass& pass, StepRoom room);

  DecoderShape shape_;
  bool first_stage_;
  bool wants_graphs_;
  parallel::Communicator& group_;
  kernels::Stream& stream_;
  StepClock* clock_;
  GpuWait wait_;
  KvCache cache_;
  GpuProducts products_;
  GpuDecoder decoder_;
  GpuStepInputs inputs_;
  StageEdges edges_;
  std::optional<GpuSampler> sampler_;
  GpuGraphs graphs_;
  std::span<const int32_t> ids_;
};

GpuBackend::GpuBackend(const RankPlace& place, const DecoderShape& shape,
                       const StageWeights& weights, const BackendLinks& links,
                       kernels::Stream& stream, ResultShape result_shape, GpuArena& arena,
                       bool graphs)
    : shape_(shape),
      first_stage_(place.first_stage()),
      wants_graphs_(graphs && links.clock == nullptr),
      group_(links.group),
      stream_(stream),
      clock_(links.clock),
      wait_({&links.group, &links.edges}),
      cache_(shape.formats, shape.layers.size(), shape.shard.kv_heads.size(), shape.spec.head_dim,
             cleared_cache(shape, arena, stream)),
      products_(shape, GpuDecoder::max_rows(shape.limits), 2 * shape.limits.max_sequences, arena),
      decoder_(shape, weights, cache_, links.group, products_, arena, stream, links.clock),
      inputs_(shape.limits, arena),
      edges_(place.mesh, place.world_rank, links.edges, links.group, stream,
             arena.take(place.last_stage() ? 0 : StageEdges::memory_bytes(shape)),
             shape.limits.max_batch_tokens * shape.spec.hidden, shape.formats.activations) {
  if (place.last_stage())
    sampler_.emplace(shape, weights, links.group, products_, result_shape, wait_, arena, stream,
                     links.clock);
}

std::string GpuBackend::measure() {
  decoder_.measure_products();
  if (sampler_) sampler_->measure_products();
  return products_.choices();
}

void GpuBackend::prepare(std::string_view choices) {
  products_.adopt(choices);
  measure();
  if (wants_graphs_) capture();
}

void GpuBackend::capture() {
  const size_t most_rows = 2 * shape_.limits.max_sequences;
  const size_t sum_bytes = most_rows * shape_.spec.hidden * sizeof(float);
  if (group_.size() > 1 && group_.capturable_sum_bytes() < sum_bytes) {
    spdlog::debug("no graphs: this stage's communicator cannot record sums of {} bytes", sum_bytes);
    return;
  }
  const Batch no_batch;
  Slots no_slots(shape_.limits, 0);
  no_slots.apply(no_batch);
  size_t uploaded = 0;  // rows of the padding that is on the GPU
  const auto step = [&](const GraphBucket& bucket) {
    const StepRoom room{bucket.rows, bucket.rows};
    if (uploaded != bucket.rows) inputs_.upload(no_batch, no_slots, {}, room, wait_, stream_.gpu());
    uploaded = bucket.rows;
    run(graph_pass(bucket), room);
  };
  try {
    graphs_ = GpuGraphs(graph_buckets(shape_.limits), stream_.gpu(), step,
                        [&] { wait_.until_idle(stream_.gpu()); });
  } catch (const Error& error) {
    graphs_ = {};
    if (has_failed(group_)) throw;
    spdlog::warn("decode steps run without graphs: {}", error.what());
  }
}

GpuPass GpuBackend::eager_pass(StepRoom room) const {
  GpuPass pass{inputs_.ids(room), inputs_.rows(room), inputs_.single(),
               inputs_.tiles(),   inputs_.counts(),   inputs_.longest_context()};
  if (sampler_) {
    pass.wanted = inputs_.sampled_rows(room);
    pass.n_wanted = room.samples;
  }
  return pass;
}

// One row a sequence.
GpuPass GpuBackend::graph_pass(const GraphBucket& bucket) const {
  const StepRoom room{bucket.rows, bucket.rows};
  return {inputs_.ids(room), inputs_.rows(room), nullptr,
          nullptr,           {bucket.rows, 0},   bucket.context};
}

void GpuBackend::run(const GpuPass& pass, StepRoom room) {
  if (first_stage_) decoder_.embed(pass);
  decoder_.forward(pass);
  if (!sampler_) return;
  const int32_t* sampled = decoder_.output_is_narrow() ? nullptr : inputs_.sampled_rows(room);
  sampler_->head(decoder_.output(), sampled, room.samples);
}

void GpuBackend::forward(const Batch& batch, const Slots& slots) {
  mark(clock_, StepPart::host);
  const size_t tokens = slots.rows().tokens;
  size_t longest = 0;
  for (const BatchEntry& entry : batch.entries)
    longest = std::max(longest, static_cast<size_t>(entry.first_position + entry.n_rows));
  const bool decodes = tokens == batch.entries.size();
  const GpuGraphs::Captured* captured = decodes ? graphs_.find(tokens, longest) : nullptr;
  StepRoom room{tokens, batch.n_samples()};
  if (captured != nullptr) room = {captured->bucket.rows, captured->bucket.rows};
  inputs_.upload(batch, slots, ids_, room, wait_, stream_.gpu());
  if (captured != nullptr)
    captured->graph.launch(stream_.gpu());
  else
    run(eager_pass(room), room);
}

}  // namespace

planner::MemoryParts gpu_memory_parts(const RankPlace& place, const DecoderShape& shape,
                                      const planner::Plan& plan, parallel::Communicator& group,
                                      ResultShape result_shape, kernels::Stream& stream) {
  GpuArena activations, buffers;
  const StageWeights weights;
  const KvCache cache;
  GpuProducts products(shape, GpuDecoder::max_rows(shape.limits), 2 * shape.limits.max_sequences,
                       activations);
  const GpuDecoder decoder(shape, weights, cache, group, products, activations, stream);
  const GpuStepInputs inputs(shape.limits, buffers);
  GpuWait wait({&group});
  if (place.last_stage())
    const GpuSampler sampler(shape, weights, group, products, result_shape, wait, buffers, stream);
  else
    buffers.take(StageEdges::memory_bytes(shape));
  GpuArena weights_part, cache_part;
  weights_part.take(
      gpu_weight_bytes(shape.spec, plan, place.stage, static_cast<size_t>(place.tp_rank)));
  cache_part.take(cache_bytes(shape));
  return {weights_part.used(), cache_part.used(), activations.used(), buffers.used()};
}

std::unique_ptr<StageBackend> make_gpu_backend(const RankPlace& place, const DecoderShape& shape,
                                               const StageWeights& weights,
                                               const BackendLinks& links, kernels::Stream& stream,
                                               ResultShape result_shape, GpuArena& arena,
                                               bool graphs) {
  return std::make_unique<GpuBackend>(place, shape, weights, links, stream, result_shape, arena,
                                      graphs);
}

}  // namespace weft::runtime
