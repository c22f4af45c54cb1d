// Loads a rank's slice of the weights: lays the arena out, then walks the tensors in file order.
#include "runtime/weights.h"

#include <algorithm>
#include <chrono>
#include <optional>

#include "runtime/base/error.h"
#include "runtime/prefault.h"
#include "runtime/weight_loader.h"

namespace weft::runtime {

StageWeights load_weights(TensorSource& source, const planner::ModelSpec& spec,
                          const planner::Plan& plan, size_t stage, size_t tp_rank,
                          parallel::Communicator& node_group,
                          const std::vector<size_t>& node_tp_ranks, kernels::Stream& stream,
                          const LoadProgress& progress, LoadReport* report) {
  const auto started = std::chrono::steady_clock::now();
  const size_t read_before = source.bytes_read();
  WEFT_EXPECT(node_tp_ranks.at(node_group.rank()) == tp_rank);
  const size_t tp = plan.replicas.at(0).stages.at(stage).tp;
  WeightLoader loader(source, spec, plan, tp, node_group, node_tp_ranks, stream);
  StageWeights weights;
  std::vector<TensorLoad> loads;
  std::optional<Prefault> prefault;
  size_t total = 0, useful = 0, done = 0;
  loader.attempt([&] {
    weights.arena = Pages(lay_out(spec, plan, stage, tp_rank, nullptr, weights, loads));
    lay_out(spec, plan, stage, tp_rank, weights.arena.data(), weights, loads);
    std::stable_sort(loads.begin(), loads.end(), [&](const TensorLoad& a, const TensorLoad& b) {
      return source.place(a.name) < source.place(b.name);
    });
    for (const TensorLoad& load : loads) {
      total += loader.read_bytes(load);
      useful += loader.useful_bytes(load);
    }
    std::vector<std::span<std::byte>> areas;
    for (const TensorLoad& load : loads) areas.push_back(loader.destination(load));
    prefault.emplace(std::move(areas));
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
    *report = {useful, source.bytes_read() - read_before, taken.count()};
  }
  return weights;
}

}  // namespace weft::runtime
