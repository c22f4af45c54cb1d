// Names of networks as users give them: interfaces, RDMA devices, or a network's address.
#pragma once

#include <string>
#include <vector>

namespace weft::launch {

// Sorts `given` into what TCP takes (interfaces of this host, or a.b.c.d/n of one of them) and RDMA
// devices of this host. Throws Error with what there is where a name is none of them.
void sort_networks(const std::vector<std::string>& given, std::vector<std::string>& interfaces,
                   std::vector<std::string>& rdma);

}  // namespace weft::launch
