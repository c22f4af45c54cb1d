// Counts the process's calls of operator new: what claims to take no memory is held to it.
#pragma once

#include <cstddef>

namespace weft::testing {

// Calls so far, over all threads.
size_t n_allocations();

}  // namespace weft::testing
