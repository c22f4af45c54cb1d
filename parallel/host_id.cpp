#include "parallel/host_id.h"

#include <fstream>

namespace weft::parallel {

HostId host_id() {
  HostId id{};
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  file.read(id.data(), id.size() - 1);
  return id;
}

}  // namespace weft::parallel
