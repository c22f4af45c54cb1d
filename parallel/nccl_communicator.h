// The communicator on NCCL, for ranks that have a GPU each. Operations are enqueued on the stream
// they are given; an exchange runs on a stream of its own, between what was enqueued before start()
// and after wait(), so that it overlaps other work.
#pragma once

#include <memory>
#include <string>

#include "parallel/communicator.h"

namespace weft::parallel {

struct NcclOptions {
  size_t scratch_bytes = 0;  // of the largest message of all_reduce_tree, taken on the GPU
  double limit_s = 60;       // for the start, and for NCCL to take in a call
  std::string library = "libnccl.so.2";
};

// Among the ranks of `host`, a communicator of host memory that NCCL's id is sent by, and that is
// kept and closed with this one. A collective; throws AgreedError, the same on every rank, where a
// rank has no NCCL, an old one, or another version than rank 0. Operations recorded into a graph
// must have run once outside before: NCCL connects ranks at the first.
std::unique_ptr<Communicator> make_nccl_communicator(std::unique_ptr<Communicator> host,
                                                     const NcclOptions& options,
                                                     kernels::Stream& stream);

}  // namespace weft::parallel
