// Which rank of a host takes which GPU: tensor-parallel groups on the GPUs nearest each other.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "parallel/topology.h"

namespace weft::parallel {

// groups: sizes of the host's tensor-parallel groups, in the ranks' order. gpus: those that may be
// taken, at least as many as ranks. Returns the GPU of each rank. The sum of pair_cost within the
// groups is the smallest there is for up to 16 GPUs; of equals, the one that comes first in
// gpus_by_place, so that neighbouring groups (pipeline stages) are near each other too.
std::vector<size_t> assign_gpus(const Topology& topology, std::span<const size_t> groups,
                                std::span<const size_t> gpus);

// Where ranks see different GPUs (a launcher gave each its own): one of its own for each rank, the
// first it sees where that can be. An entry is SIZE_MAX where GPUs don't go round.
std::vector<size_t> match_gpus(std::span<const std::vector<size_t>> seen_by_rank);

}  // namespace weft::parallel
