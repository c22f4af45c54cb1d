// Loads a rank's slice of the weights: lays the arena out, then walks the tensors in file order.
#include "runtime/weights.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/prefault.h"
#include "runtime/weight_loader.h"

namespace weft::runtime {
namespace {

std::byte* aligned(std::byte* p) {
  const auto at = reinterpret_cast<uintptr_t>(p);
  return p + ((kMapAlign - at % kMapAlign) % kMapAlign);
}

}  // namespace

StageWeights load_weights(TensorSource& source, const planner::ModelSpec& spec,
                          const planner::Plan& plan, size_t stage, size_t tp_rank,
                          parallel::Communicator& node_group,
                          const std::vector<size_t>& node_tp_ranks, kernels::Stream& stream,
                          const LoadProgress& progress, LoadReport* report, bool map_files) {
  const auto started = std::chrono::steady_clock::now();
  const size_t read_before = source.bytes_read();
  WEFT_EXPECT(node_tp_ranks.at(node_group.rank()) == tp_rank);
  const size_t tp = plan.replicas.at(0).stages.at(stage).tp;
  WeightLoader loader(source, spec, plan, tp, node_group, node_tp_ranks, stream, map_files);
  StageWeights weights;
  std::vector<TensorLoad> loads;
  std::optional<Prefault> prefault;
  size_t total = 0, useful = 0, mapped = 0, done = 0;
  loader.attempt([&] {
    // Gaps before operands that are mapped are addresses, not memory.
    bool aligns = false;
    const FilePhase phase = [&](const std::string& name, size_t row) {
      const std::optional<size_t> at = loader.phase(name, row);
      aligns = aligns || at;
      return at;
    };
    const auto lay = [&](std::byte* base) {
      return lay_out(spec, plan, stage, tp_rank, base, weights, loads, GateUpOrder::blocks, phase);
    };
    const size_t bytes = lay(nullptr);
    weights.arena = Pages(bytes + (aligns ? kMapAlign : 0));
    lay(aligns ? aligned(weights.arena.data()) : weights.arena.data());
    std::stable_sort(loads.begin(), loads.end(), [&](const TensorLoad& a, const TensorLoad& b) {
      return source.place(a.name) < source.place(b.name);
    });
    for (const TensorLoad& load : loads) {
      total += loader.read_bytes(load);
      useful += loader.useful_bytes(load);
    }
    std::vector<std::span<std::byte>> copied;
    for (const TensorLoad& load : loads)
      if (loader.is_mapped(load))
        mapped += loader.useful_bytes(load);
      else
        copied.push_back(loader.destination(load));
    // Between mapped tensors small ones and edges are written: not worth huge pages.
    if (mapped > 0) {
      Pages::advise_huge({weights.arena.data(), weights.arena.bytes()}, false);
      for (const std::span<std::byte> area : copied)
        if (area.size() >= kMapAlign) Pages::advise_huge(area, true);
    }
    prefault.emplace(std::move(copied));
  });
  loader.agree();
  for (const TensorLoad& load : loads)
    loader.load(load, [&](size_t bytes) {
      done += bytes;
      prefault->reached(static_cast<double>(done) / static_cast<double>(total));
      if (progress) progress(done, total);
    });
  loader.agree();
  if (report != nullptr) {
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - started;
    *report = {useful, source.bytes_read() - read_before, mapped, taken.count()};
  }
  return weights;
}

}  // namespace weft::runtime
