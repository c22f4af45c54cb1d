// Whole cores shared out fairly among ranks that each want to be near something.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "parallel/cpu_set.h"

namespace weft::parallel {

// For each rank the cores it gets (indices, ascending), all within the CPUs it wants, none given
// twice; ranks that want the same get equal numbers (the first ones one more where it doesn't come
// out even), neighbouring cores each. Where masks overlap without being equal, who has fewer takes
// first, and takes what the fewest others want. Empty for a rank where there was nothing left.
std::vector<std::vector<size_t>> split_cores(std::span<const CpuSet> cores,
                                             std::span<const CpuSet> wanted);

}  // namespace weft::parallel
