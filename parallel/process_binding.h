// Binds this process, every thread of it, to CPUs, and prefers NUMA nodes for its memory. What was
// asked for is read back, because the kernel silently gives less; where a container forbids it, a
// warning says so and the process goes on.
#pragma once

#include <string>
#include <vector>

#include "parallel/cpu_set.h"
#include "parallel/hwloc_handle.h"

namespace weft::parallel {

class ProcessBinder {
 public:
  ProcessBinder();  // throws Error where hwloc can't look at the machine

  CpuSet allowed() const;  // CPUs that the process could be bound to (its cgroup's)
  CpuSet bound() const;    // CPUs that any of its threads may run on now
  // Return warnings. Memory: of this thread and those that it starts from now on.
  std::vector<std::string> bind(const CpuSet& cpus);
  std::vector<std::string> prefer_memory(const std::vector<int>& nodes);

 private:
  HwlocHandle topology_;
};

}  // namespace weft::parallel
