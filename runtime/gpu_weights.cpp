// Reads go into a ring of pinned buffers, so that the disk and the copies to the GPU overlap.
#include "runtime/gpu_weights.h"

#include <algorithm>
#include <array>
#include <chrono>

#include "runtime/base/error.h"
#include "runtime/gpu_synthesis.h"
#include "runtime/weight_loader.h"

namespace weft::runtime {
namespace {

using kernels::GpuEvent;
using kernels::PinnedBuffer;

constexpr size_t kPinnedBytes = size_t{32} << 20;
constexpr size_t kNPinned = 3;

// Pinned buffers in turn; each is free again when the copies from it are over.
class PinnedRing {
 public:
  // The next buffer, with room for `bytes`.
  std::byte* next(size_t bytes) {
    Slot& slot = slots_[++turn_ % kNPinned];
    slot.copied.synchronise();
    if (slot.memory.bytes() < bytes) slot.memory = PinnedBuffer(std::max(bytes, kPinnedBytes));
    return slot.memory.data();
  }
  void copied(kernels::Stream& stream) { slots_[turn_ % kNPinned].copied.record(stream.gpu()); }

 private:
  struct Slot {
    PinnedBuffer memory;
    GpuEvent copied;
  };
  std::array<Slot, kNPinned> slots_;
  size_t turn_ = 0;
};

class GpuLoader {
 public:
  GpuLoader(TensorSource& source, DType dtype, WeightLoader& loader, kernels::Stream& stream,
            const WeightLoader::Done& done)
      : source_(source), dtype_(dtype), loader_(loader), stream_(stream), done_(done) {}

  void load(const TensorLoad& load) {
    if (loader_.is_whole(load)) return loader_.attempt([&] { load_rows(load); });
    load_columns(load);
  }

 private:
  void load_rows(const TensorLoad& load);
  void load_columns(const TensorLoad& load);

  TensorSource& source_;
  DType dtype_;
  WeightLoader& loader_;
  kernels::Stream& stream_;
  const WeightLoader::Done& done_;
  PinnedRing ring_;
  Pages stored_;  // rows before their conversion
};

void GpuLoader::load_rows(const TensorLoad& load) {
  const TensorInfo& info = *source_.find(load.name);
  const size_t columns = info.shape.size() > 1 ? info.shape[1] : 1;
  const size_t row_bytes = columns * dtype_bytes(dtype_);
  const size_t stored_bytes = columns * dtype_bytes(info.dtype);
  const size_t most = std::max<size_t>(1, kPinnedBytes / std::max(row_bytes, stored_bytes));
  const bool direct = info.dtype == dtype_;
  if (!direct && stored_.bytes() < most * stored_bytes) stored_ = Pages(most * stored_bytes);
  std::byte* to = load.to;
  for (size_t begin = load.rows.begin; begin < load.rows.end; begin += most) {
    const size_t n = std::min(most, load.rows.end - begin);
    std::byte* pinned = ring_.next(n * row_bytes);
    source_.read_rows(load.name, begin, begin + n, direct ? pinned : stored_.data(),
                      stream_.pool());
    if (!direct)
      stream_.pool().split(n * columns, size_t{1} << 16, [&](size_t from, size_t until) {
        convert(stored_.data() + from * dtype_bytes(info.dtype), info.dtype,
                pinned + from * dtype_bytes(dtype_), dtype_, until - from);
      });
    const size_t pitch = load.row_step * row_bytes;
    kernels::copy_rows(to, pitch, pinned, row_bytes, row_bytes, n, stream_.gpu());
    ring_.copied(stream_);
    to += n * pitch;
    done_(n * stored_bytes);
  }
}

// The ranks of the host share the reading of what they split by columns, in host memory.
void GpuLoader::load_columns(const TensorLoad& load) {
  const size_t bytes = loader_.destination(load).size();
  TensorLoad staged = load;
  loader_.attempt([&] { staged.to = ring_.next(bytes); });
  loader_.load(staged, done_);
  loader_.attempt([&] {
    kernels::copy_bytes(load.to, staged.to, bytes, stream_.gpu());
    ring_.copied(stream_);
  });
}

ColumnPart part_of(const planner::ModelSpec& spec, const TensorInfo& info, const TensorLoad& load,
                   size_t tp, size_t tp_rank) {
  if (load.split != ColumnSplit::none) return column_part(spec, load.split, tp, tp_rank);
  const size_t columns = info.shape.size() > 1 ? info.shape[1] : 1;
  return {{0, columns}, columns};
}

}  // namespace

size_t gpu_weight_bytes(const planner::ModelSpec& spec, const planner::Plan& plan, size_t stage,
                        size_t tp_rank) {
  StageWeights weights;
  std::vector<TensorLoad> loads;
  return lay_out(spec, plan, stage, tp_rank, nullptr, weights, loads, GateUpOrder::interleaved);
}

StageWeights load_gpu_weights(TensorSource& source, const planner::ModelSpec& spec,
                              const planner::Plan& plan, size_t stage, size_t tp_rank,
                              parallel::Communicator& node_group,
                              const std::vector<size_t>& node_tp_ranks, kernels::Stream& stream,
                              GpuArena& arena, const LoadProgress& progress, LoadReport* report) {
  const auto started = std::chrono::steady_clock::now();
  const size_t read_before = source.bytes_read();
  const size_t tp = plan.replicas.at(0).stages.at(stage).tp;
  WeightLoader loader(source, spec, plan, tp, node_group, node_tp_ranks, stream, false);
  StageWeights weights;
  std::vector<TensorLoad> loads;
  size_t total = 0, useful = 0, done = 0;
  loader.attempt([&] {
    const size_t bytes = gpu_weight_bytes(spec, plan, stage, tp_rank);
    std::byte* base = arena.take(bytes);
    lay_out(spec, plan, stage, tp_rank, base, weights, loads, GateUpOrder::interleaved);
    kernels::clear_bytes(base, bytes, stream.gpu());  // padding stays zero
    std::stable_sort(loads.begin(), loads.end(), [&](const TensorLoad& a, const TensorLoad& b) {
      return source.place(a.name) < source.place(b.name);
    });
    for (const TensorLoad& load : loads) {
      total += loader.read_bytes(load);
      useful += loader.useful_bytes(load);
    }
  });
  loader.agree();
  const WeightLoader::Done on_bytes = [&](size_t bytes) {
    done += bytes;
    if (progress) progress(done, total);
  };
  GpuLoader gpu_loader(source, plan.formats.weights, loader, stream, on_bytes);
  const std::optional<uint64_t> seed = source.synthetic_seed();
  for (const TensorLoad& load : loads) {
    if (!seed) {
      gpu_loader.load(load);
      continue;
    }
    const TensorInfo& info = *source.find(load.name);
    make_on_gpu(*seed, info, load, part_of(spec, info, load, tp, tp_rank), plan.formats.weights,
                stream);
  }
  loader.attempt([&] { kernels::synchronise(stream.gpu()); });
  loader.agree();
  if (report != nullptr) {
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - started;
    *report = {useful, source.bytes_read() - read_before, 0, taken.count()};
  }
  return weights;
}

}  // namespace weft::runtime
