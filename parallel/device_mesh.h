// The groups that a plan makes of the job's ranks: stages, tensor-parallel groups, pipeline edges.
#pragma once

#include <cstddef>
#include <vector>

#include "planner/plan.h"

namespace weft::parallel {

// World ranks are counted through the stages: stage 0's tensor-parallel ranks first.
struct DeviceMesh {
  struct StageRanks {
    int first = 0;  // world rank of tensor-parallel rank 0
    int tp = 1;
  };
  std::vector<StageRanks> stages;

  size_t n_stages() const { return stages.size(); }
  size_t stage_of(int world_rank) const;
  int tp_rank_of(int world_rank) const;
  std::vector<int> ranks_of(size_t stage) const;  // world ranks
};

DeviceMesh make_mesh(const planner::Plan& plan);

// One contiguous slice of a flat buffer that crosses from a stage to the next.
struct EdgeSlice {
  int from = 0;  // world ranks
  int to = 0;
  size_t begin = 0;  // elements
  size_t end = 0;
};
// The flat [n] buffer is cut into one slice a receiver, in the receivers' order and of equal length
// ceil(n / receivers) except at the end (a slice may be empty); senders take turns, so that each
// sends an equal share. n = tokens * hidden. This is the slice of to_stage's tensor-parallel rank
// `receiver`.
EdgeSlice edge_slice(const DeviceMesh& mesh, size_t from_stage, size_t to_stage, size_t n,
                     int receiver);

}  // namespace weft::parallel
