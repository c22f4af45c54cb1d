// Ranks counted through the stages, and the slices that cross between them.
#include "parallel/device_mesh.h"

#include <algorithm>
#include <numeric>

#include "runtime/base/error.h"

namespace weft::parallel {

size_t DeviceMesh::stage_of(int world_rank) const {
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    const StageRanks& ranks = stages[stage];
    if (world_rank >= ranks.first && world_rank < ranks.first + ranks.tp) return stage;
  }
  throw run_error("rank {} is in none of the plan's {} stages", world_rank, stages.size());
}

int DeviceMesh::tp_rank_of(int world_rank) const {
  return world_rank - stages[stage_of(world_rank)].first;
}

std::vector<int> DeviceMesh::ranks_of(size_t stage) const {
  const StageRanks& ranks = stages.at(stage);
  std::vector<int> all(static_cast<size_t>(ranks.tp));
  std::iota(all.begin(), all.end(), ranks.first);
  return all;
}

DeviceMesh make_mesh(const planner::Plan& plan) {
  if (plan.replicas.empty() || plan.replicas.front().stages.empty()) {
    throw input_error("the plan has no stages");
  }
  constexpr size_t kMaxRanks = 1 << 20;
  DeviceMesh mesh;
  size_t first = 0;
  for (const planner::Stage& stage : plan.replicas.front().stages) {
    if (stage.tp == 0 || stage.tp > kMaxRanks - first) {
      throw input_error("stage {} of the plan has tp {}: at least 1 rank a stage and {} in all",
                        mesh.stages.size(), stage.tp, kMaxRanks);
    }
    if (stage.dp != 1) {
      throw input_error("stage {} of the plan has dp {}: a job runs one replica of each stage",
                        mesh.stages.size(), stage.dp);
    }
    mesh.stages.push_back({static_cast<int>(first), static_cast<int>(stage.tp)});
    first += stage.tp;
  }
  return mesh;
}

EdgeSlice edge_slice(const DeviceMesh& mesh, size_t from_stage, size_t to_stage, size_t n,
                     int receiver) {
  const DeviceMesh::StageRanks& from = mesh.stages.at(from_stage);
  const DeviceMesh::StageRanks& to = mesh.stages.at(to_stage);
  WEFT_EXPECT(receiver >= 0 && receiver < to.tp);
  const auto receivers = static_cast<size_t>(to.tp);
  const auto place = static_cast<size_t>(receiver);
  const size_t length = n / receivers + (n % receivers != 0);
  return {from.first + receiver % from.tp, to.first + receiver, std::min(n, place * length),
          std::min(n, (place + 1) * length)};
}

}  // namespace weft::parallel
