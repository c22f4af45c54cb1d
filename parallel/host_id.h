// Which kernel a process runs on: containers of one host share it.
#pragma once

#include <array>

namespace weft::parallel {

using HostId = std::array<char, 64>;

HostId host_id();

}  // namespace weft::parallel
