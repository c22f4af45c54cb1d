// What a rank can say of NCCL before it starts it: the version that it would load, and what the
// user's variables ask for. A wrong one shows here as a sentence, and otherwise as a start that
// hangs or a slow network that nobody asked for.
#pragma once

#include <string>
#include <vector>

#include "parallel/launch_place.h"

namespace weft::parallel {

// Networks of this process, as NCCL finds them; sorted.
struct HostNetworks {
  std::vector<std::string> interfaces;  // up, with an address; the loopback too
  std::vector<std::string> rdma;        // devices
};
HostNetworks host_networks();

// "2.28.9"; or why it can't be used.
std::string nccl_version_here(const std::string& library = "libnccl.so.2");

// NCCL's variables that all ranks must have alike: "NCCL_ALGO=Ring NCCL_NET=IB", sorted; empty
// where none is set.
std::string nccl_settings(const Environment& environment);

// Variables that name what this host does not have, a sentence each. A name that NCCL needs on one
// host too, or, where several_hosts, for what goes between them.
std::vector<std::string> nccl_name_problems(const Environment& environment,
                                            const HostNetworks& networks, bool several_hosts);

}  // namespace weft::parallel
