// Sums over ranks as decode steps have them: short, one after another, replayed as a graph; peer
// memory beside NCCL. On CPUs, which have no graphs, MPI's alone.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "launch/links_report.h"
#include "launch/links_rig.h"
#include "parallel/mpi_session.h"
#include "parallel/peer_memory.h"

namespace weft::launch {

class LinkSums {
 public:
  // A collective; on GPUs that ranks share, NCCL is tried where `options` ask for it.
  LinkSums(LinkRig& rig, const parallel::MpiSession& session, const Device& device,
           const DeviceOptions& options);

  std::vector<std::string> ways() const;
  // Why NCCL or peer memory is not among them; empty where both are.
  const std::string& missing() const { return missing_; }
  SumRow measure(size_t bytes);
  void close();

 private:
  struct Way {
    std::string name;
    size_t most_bytes;
    std::function<void(size_t n)> sum;  // of n elements of the rig's buffer, in place
  };

  void add_peer_ways();
  double graph_us(const Way& way, size_t bytes, size_t& n_wrong);

  LinkRig& rig_;
  std::unique_ptr<parallel::PeerMemory> memory_;
  std::unique_ptr<parallel::Communicator> nccl_;
  std::string missing_;
  std::vector<Way> ways_;
};

}  // namespace weft::launch
