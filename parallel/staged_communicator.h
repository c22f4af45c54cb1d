// A communicator for GPU memory over one for host memory: data passes through pinned buffers, and
// the host waits for the stream before each operation. Works wherever MPI does, ranks that share a
// GPU included; not capturable.
#pragma once

#include <memory>

#include "parallel/communicator.h"

namespace weft::parallel {

struct Staging {
  size_t collective_bytes = 0;  // of the largest collective's data on one rank, all ranks' parts
                                // of a gather included
  size_t exchange_bytes = 0;    // of the largest exchange on one rank
  size_t n_exchanges = 4;       // in flight
};

// All memory is taken here, none in an operation. Streams that operations are given have a GPU's.
std::unique_ptr<Communicator> make_staged_communicator(std::unique_ptr<Communicator> host,
                                                       const Staging& staging);

}  // namespace weft::parallel
