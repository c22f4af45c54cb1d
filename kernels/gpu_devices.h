// The GPUs that this process can use. Built with or without a CUDA toolkit, on machines with or
// without a driver: a missing one is an answer, not an error.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

namespace weft::kernels {

struct GpuInfo {
  std::string name;
  int compute_major = 0;
  int compute_minor = 0;
  size_t total_bytes = 0;
  size_t free_bytes = 0;   // at the time of the query
  std::string pci_bus_id;  // "0000:3b:00.0"
};

struct GpuQuery {
  std::vector<GpuInfo> gpus;  // in CUDA's order
  std::string why_none;       // empty where gpus is not
};

// Makes a context on each GPU for a moment, to ask for its free memory.
GpuQuery query_gpus();
// Makes none; free_bytes is 0.
GpuQuery list_gpus();

// Compute capabilities that this build has code for: "9.0a" runs on 9.0 alone. Empty without CUDA.
std::vector<std::string> built_capabilities();

// True where a GPU driver is loaded on this host. Touches neither driver nor GPU, so that it may be
// asked before a fork.
bool gpu_driver_loaded();

}  // namespace weft::kernels
