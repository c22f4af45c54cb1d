// A rank on the CPU: every operation has finished when its function returns.
#include <optional>

#include "runtime/kv_cache.h"
#include "runtime/sampler.h"
#include "runtime/stage_backend.h"
#include "runtime/stage_edges.h"

namespace weft::runtime {
namespace {

class CpuBackend final : public StageBackend {
 public:
  CpuBackend(const RankPlace& place, const DecoderShape& shape, const StageWeights& weights,
             const BackendLinks& links, kernels::Stream& stream, ResultShape result_shape)
      : hidden_(shape.spec.hidden),
        cache_(shape.formats, shape.limits.kv_blocks, shape.layers.size(),
               shape.shard.kv_heads.size(), shape.spec.head_dim),
        decoder_(shape, weights, cache_, links.group, stream, links.clock),
        edge_memory_(place.last_stage() ? 0 : StageEdges::memory_bytes(shape)),
        edges_(place.mesh, place.world_rank, links.edges, links.group, stream, edge_memory_.data(),
               shape.limits.max_batch_tokens * shape.spec.hidden, shape.formats.activations) {
    if (place.last_stage())
      sampler_.emplace(shape, weights, links.group, stream, result_shape, links.clock);
  }

  void embed(std::span<const int32_t> ids) override { decoder_.embed(ids); }
  void receive(size_t tokens) override { edges_.receive(decoder_.residual(), tokens * hidden_); }
  void forward(const Batch&, const Slots& slots) override { decoder_.forward(slots.rows()); }
  void sample(const Batch& batch, Slots& slots, TokenResults& results) override {
    sampler_->sample(batch, decoder_.residual(), slots, results);
  }
  void send(size_t tokens) override { edges_.send(decoder_.residual(), tokens * hidden_); }
  void finish() override { edges_.finish(); }

 private:
  size_t hidden_;
  KvCache cache_;
  Decoder decoder_;
  Pages edge_memory_;
  StageEdges edges_;
  std::optional<Sampler> sampler_;
};

}  // namespace

std::unique_ptr<StageBackend> make_cpu_backend(const RankPlace& place, const DecoderShape& shape,
                                               const StageWeights& weights,
                                               const BackendLinks& links, kernels::Stream& stream,
                                               ResultShape result_shape) {
  return std::make_unique<CpuBackend>(place, shape, weights, links, stream, result_shape);
}

}  // namespace weft::runtime
