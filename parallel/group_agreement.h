// A group's rule about failures during set-up: all its ranks learn of them before one waits for
// another. (parallel/mpi_session.h has the same for the whole job.)
#pragma once

#include <functional>
#include <string>

#include "parallel/communicator.h"

namespace weft::parallel {

// Runs `step`, which must not communicate, on every rank of the group (a communicator of host
// memory). Where it threw Error anywhere, the same text on every rank: "rank 1 of 2: …" of the
// lowest; else an empty one.
std::string failure_in_group(Communicator& host, kernels::Stream& stream,
                             const std::function<void()>& step);
// Throws it as AgreedError.
void agree_in_group(Communicator& host, kernels::Stream& stream, const std::function<void()>& step);

// Until all ranks of the group are here.
void wait_for_group(Communicator& host, kernels::Stream& stream);

}  // namespace weft::parallel
