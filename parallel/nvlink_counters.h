// Bytes that a GPU's NVLinks have carried, as its own counters say: what went over the wire beside
// what a program meant to send.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "parallel/nvml_library.h"

namespace weft::parallel {

struct NvLinkBytes {
  uint64_t sent = 0;
  uint64_t received = 0;
};

class NvLinkCounters {
 public:
  // Of the GPU with this bus id; NVML counts all processes' traffic.
  explicit NvLinkCounters(const std::string& bus_id,
                          const std::string& library = "libnvidia-ml.so.1");

  // Empty where they can be read.
  const std::string& why_none() const { return why_none_; }
  // Over all links of the GPU, protocol included where the driver counts it; only differences mean
  // anything. Takes the driver some microseconds. None where they can't be read.
  std::optional<NvLinkBytes> read() const;

 private:
  std::optional<uint64_t> field(unsigned number) const;

  NvmlLibrary nvml_;
  NvmlDevice device_ = nullptr;
  std::string why_none_;
};

}  // namespace weft::parallel
