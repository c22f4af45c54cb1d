// The few functions of NVML that tell what a host's GPUs are.
#include "parallel/nvml_source.h"

#include <algorithm>
#include <array>

#include "parallel/nvml_library.h"
#include "runtime/base/error.h"

namespace weft::parallel {
namespace {

using Device = NvmlDevice;
using PciInfo = NvmlPciInfo;
using Nvml = NvmlLibrary;
constexpr unsigned kMostGpus = 1024;
constexpr unsigned kMostLinks = 36;
constexpr unsigned kMostMigDevices = 64;
constexpr unsigned kRemoteGpu = 0;
constexpr size_t kTextBytes = 96;

struct Memory {  // nvmlMemory_t
  unsigned long long total;
  unsigned long long free;
  unsigned long long used;
};

std::string text(const Nvml& nvml, const char* name, Device device) {
  std::array<char, kTextBytes> buffer{};
  if (!nvml.call(name, device, buffer.data(), static_cast<unsigned>(kTextBytes))) return {};
  buffer.back() = '\0';
  return buffer.data();
}

std::string bus_id_of(PciInfo& info) {
  info.bus_id[sizeof(info.bus_id) - 1] = '\0';
  return normal_bus_id(info.bus_id);
}

std::vector<std::string> mig_uuids(const Nvml& nvml, Device device) {
  unsigned now = 0, pending = 0, most = 0;
  if (!nvml.call("nvmlDeviceGetMigMode", device, &now, &pending) || now == 0) return {};
  if (!nvml.call("nvmlDeviceGetMaxMigDeviceCount", device, &most)) return {};
  std::vector<std::string> uuids;
  for (unsigned i = 0; i < std::min(most, kMostMigDevices); ++i) {
    Device part = nullptr;
    if (!nvml.call("nvmlDeviceGetMigDeviceHandleByIndex", device, i, &part)) continue;
    uuids.push_back(text(nvml, "nvmlDeviceGetUUID", part));
  }
  return uuids;
}

void add_links(const Nvml& nvml, Device device, const std::string& bus_id,
               std::vector<NvLinkEnd>& links) {
  for (unsigned link = 0; link < kMostLinks; ++link) {
    unsigned active = 0, kind = 255;
    PciInfo far{};
    if (!nvml.call("nvmlDeviceGetNvLinkState", device, link, &active) || active == 0) continue;
    nvml.call("nvmlDeviceGetNvLinkRemoteDeviceType", device, link, &kind);
    const bool named = nvml.call("nvmlDeviceGetNvLinkRemotePciInfo_v2", device, link, &far);
    const std::string to = kind == kRemoteGpu && named ? bus_id_of(far) : "switches";
    const auto known = std::find_if(links.begin(), links.end(), [&](const NvLinkEnd& end) {
      return end.gpu == bus_id && end.to == to;
    });
    if (known == links.end())
      links.push_back({bus_id, to, 1});
    else
      ++known->n_links;
  }
}

}  // namespace

NvmlAnswer query_nvml(const std::string& library) {
  NvmlAnswer answer;
  Nvml nvml(library);
  if (!nvml.loaded()) {
    answer.why_none = library + " is not there: no NVIDIA driver";
    return answer;
  }
  unsigned n = 0;
  if (!nvml.start() || !nvml.call("nvmlDeviceGetCount_v2", &n)) {
    answer.why_none = library + " does not start: is the NVIDIA driver loaded?";
    return answer;
  }
  for (unsigned i = 0; i < std::min(n, kMostGpus); ++i) {
    Device device = nullptr;
    PciInfo pci{};
    Memory memory{};
    if (!nvml.call("nvmlDeviceGetHandleByIndex_v2", i, &device)) continue;
    if (!nvml.call("nvmlDeviceGetPciInfo_v3", device, &pci)) continue;
    NvmlGpu gpu;
    gpu.bus_id = bus_id_of(pci);
    gpu.name = text(nvml, "nvmlDeviceGetName", device);
    gpu.uuid = text(nvml, "nvmlDeviceGetUUID", device);
    if (nvml.call("nvmlDeviceGetMemoryInfo", device, &memory)) gpu.memory_bytes = memory.total;
    gpu.mig_uuids = mig_uuids(nvml, device);
    add_links(nvml, device, gpu.bus_id, answer.links);
    answer.gpus.push_back(std::move(gpu));
  }
  return answer;
}

void add_nvml(Topology& t, const NvmlAnswer& answer) {
  if (!answer.why_none.empty()) {
    if (!t.gpus.empty())
      t.doubts.push_back(
          fmt::format("{} NVIDIA GPUs are on the PCI bus, but {}", t.gpus.size(), answer.why_none));
    return;
  }
  for (Gpu& gpu : t.gpus) gpu.usable = false;
  for (const NvmlGpu& known : answer.gpus) {
    auto gpu = std::find_if(t.gpus.begin(), t.gpus.end(),
                            [&](const Gpu& on_bus) { return on_bus.bus_id == known.bus_id; });
    if (gpu == t.gpus.end()) {
      t.doubts.push_back(
          fmt::format("the driver shows GPU {}, the PCI bus does not: its root "
                      "complex and NUMA node are not known",
                      known.bus_id));
      t.gpus.emplace_back();
      gpu = t.gpus.end() - 1;
      gpu->bus_id = known.bus_id;
      gpu->vendor = kNvidia;
      gpu->pci_class = 0x0302;
      gpu->root = t.roots.size();
      t.roots.push_back({"unknown", {}, -1});
    }
    gpu->usable = true;
    gpu->name = known.name;
    gpu->uuid = known.uuid;
    gpu->memory_bytes = known.memory_bytes;
    gpu->mig_uuids = known.mig_uuids;
  }
  if (!answer.links.empty()) t.nvlink_source = "NVML";
}

}  // namespace weft::parallel
