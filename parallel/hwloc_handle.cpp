// Starting hwloc.
#include "parallel/hwloc_handle.h"

#include <cerrno>

#include "runtime/base/error.h"

namespace weft::parallel {

HwlocHandle::HwlocHandle() {
  if (hwloc_topology_init(&topology_) != 0) throw system_error("cannot start hwloc", errno);
}

void HwlocHandle::load() {
  if (hwloc_topology_load(topology_) != 0)
    throw system_error("hwloc cannot look at this machine", errno);
}

}  // namespace weft::parallel
