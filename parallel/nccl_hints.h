// Which network NCCL should take, as values for its variables: it finds cards itself, but knows
// nothing of cards that are there for storage, nor of bridges that lead nowhere.
#pragma once

#include <string>
#include <vector>

#include "parallel/topology.h"

namespace weft::parallel {

// Empty values: NCCL does as well without.
struct NcclHints {
  std::string ib_hca;         // NCCL_IB_HCA: "=mlx5_0,mlx5_1"
  std::string socket_ifname;  // NCCL_SOCKET_IFNAME: "=eth0"
};

// ib_hca: the RDMA cards nearest to any of these GPUs, where the host has others beside them.
// socket_ifname: of the interfaces that are up with an address (loopback left out) those that are
// network cards, where there are others (bridges of containers and virtual machines).
NcclHints nccl_hints(const Topology& topology, const std::vector<size_t>& gpus,
                     const std::vector<std::string>& interfaces_up);

// The interfaces to choose from for socket_ifname: interfaces_up(), or none where one of them is
// made of others (a bond, a VLAN), since the fast one may be that.
std::vector<std::string> interfaces_to_choose();

// Interfaces of this process's network that are up and have an IPv4 or IPv6 address, without
// loopback and link-local addresses; sorted.
std::vector<std::string> interfaces_up();

}  // namespace weft::parallel
