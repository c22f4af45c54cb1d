// NVML's field values, in KiB; the raw counters where there are any, else those of the payload.
#include "parallel/nvlink_counters.h"

namespace weft::parallel {
namespace {

// NVML_FI_DEV_NVLINK_THROUGHPUT_…
constexpr unsigned kDataSent = 138;
constexpr unsigned kDataReceived = 139;
constexpr unsigned kRawSent = 140;
constexpr unsigned kRawReceived = 141;
constexpr unsigned kAllLinks = ~0u;

}  // namespace

NvLinkCounters::NvLinkCounters(const std::string& bus_id, const std::string& library)
    : nvml_(library) {
  if (!nvml_.loaded()) {
    why_none_ = library + " is not there: no NVIDIA driver";
  } else if (!nvml_.start()) {
    why_none_ = library + " does not start: is the NVIDIA driver loaded?";
  } else if (!nvml_.call("nvmlDeviceGetHandleByPciBusId_v2", bus_id.c_str(), &device_)) {
    why_none_ = "NVML does not know the GPU " + bus_id;
  } else if (!read()) {
    why_none_ = "NVML counts no NVLink bytes of the GPU " + bus_id;
  }
}

std::optional<uint64_t> NvLinkCounters::field(unsigned number) const {
  NvmlFieldValue value{};
  value.field = number;
  value.scope = kAllLinks;
  if (!nvml_.call("nvmlDeviceGetFieldValues", device_, 1, &value) || value.status != 0)
    return std::nullopt;
  return value.value * 1024;
}

std::optional<NvLinkBytes> NvLinkCounters::read() const {
  if (device_ == nullptr) return std::nullopt;
  for (const auto& [sent, received] :
       {std::pair(kRawSent, kRawReceived), std::pair(kDataSent, kDataReceived)}) {
    const std::optional<uint64_t> out = field(sent), in = field(received);
    if (out && in) return NvLinkBytes{*out, *in};
  }
  return std::nullopt;
}

}  // namespace weft::parallel
