// Bisection over counts.
#pragma once

#include <cstddef>

namespace weft::planner {

// The largest n from `low` to `high` for which holds(n); `low` where none above it does. What holds
// for a number holds for all smaller ones.
template <class Holds>
size_t last_that(size_t low, size_t high, Holds&& holds) {
  while (low < high) {
    const size_t middle = low + (high - low + 1) / 2;
    if (holds(middle))
      low = middle;
    else
      high = middle - 1;
  }
  return low;
}

}  // namespace weft::planner
