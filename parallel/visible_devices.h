// CUDA_VISIBLE_DEVICES, as CUDA itself reads it: which GPUs of the host this process may take.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "parallel/topology.h"

namespace weft::parallel {

struct VisibleDevices {
  std::vector<size_t> gpus;            // indices into Topology::gpus, in CUDA's order
  std::vector<std::string> mig_uuids;  // [gpus] the instance, where one is named; else empty
  std::vector<std::string> doubts;
};

// value: of CUDA_VISIBLE_DEVICES, none where it is unset. order: of CUDA_DEVICE_ORDER, as it was
// before weft set PCI_BUS_ID. Numbers count the GPUs that the driver shows, by bus id; "GPU-…" may
// be cut short; "MIG-…" is an instance. As in CUDA, the first entry that is none ends the list, and
// a GPU named twice leaves none.
VisibleDevices visible_devices(const Topology& topology, const std::optional<std::string>& value,
                               const std::string& order);

}  // namespace weft::parallel
