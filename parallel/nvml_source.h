// What NVIDIA's management library knows of the GPUs. It is loaded when asked, never linked, so
// that weft starts on machines without a driver; asking starts neither CUDA nor a context.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/topology.h"

namespace weft::parallel {

struct NvmlGpu {
  std::string bus_id;
  std::string name;
  std::string uuid;
  uint64_t memory_bytes = 0;
  std::vector<std::string> mig_uuids;
};

struct NvmlAnswer {
  std::vector<NvmlGpu> gpus;
  std::vector<NvLinkEnd> links;
  std::string why_none;  // empty where the library answered; it may know no GPU even so
};

NvmlAnswer query_nvml(const std::string& library = "libnvidia-ml.so.1");

// Adds it to what the PCI bus told: names, UUIDs, memory; GPUs that only NVML shows (a container
// without a PCI tree) get a root of their own, and those it doesn't show are not usable. Before
// finish().
void add_nvml(Topology& topology, const NvmlAnswer& answer);

}  // namespace weft::parallel
