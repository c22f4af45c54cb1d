// The live machine: hwloc finds CPUs and PCI devices and writes its XML, which the reader of files
// takes, so that what is tested on recorded nodes is what runs on live ones. NVML adds the GPUs'
// names and links.
#include <fmt/format.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <fstream>
#include <memory>

#include "parallel/hwloc_handle.h"
#include "parallel/hwloc_xml_source.h"
#include "parallel/nvml_source.h"
#include "parallel/topology_compare.h"
#include "parallel/topology_sources.h"
#include "parallel/xml_tree.h"
#include "runtime/base/error.h"

namespace weft::parallel {
namespace {

// hwloc's plugins for GPUs start their drivers, which takes long and makes threads.
constexpr std::array<const char*, 6> kSlowPlugins = {"cuda", "nvml", "opencl",
                                                     "gl",   "rsmi", "levelzero"};

std::string export_machine(Devices devices) {
  HwlocHandle topology;
  for (const char* plugin : kSlowPlugins)
    hwloc_topology_set_components(topology.get(), HWLOC_TOPOLOGY_COMPONENTS_FLAG_BLACKLIST, plugin);
  hwloc_topology_set_io_types_filter(topology.get(), devices == Devices::yes
                                                         ? HWLOC_TYPE_FILTER_KEEP_IMPORTANT
                                                         : HWLOC_TYPE_FILTER_KEEP_NONE);
  hwloc_topology_set_cache_types_filter(topology.get(), HWLOC_TYPE_FILTER_KEEP_NONE);
  topology.load();
  char* text = nullptr;
  int bytes = 0;
  if (hwloc_topology_export_xmlbuffer(topology.get(), &text, &bytes, 0) != 0)
    throw system_error("hwloc cannot write what it found", errno);
  const std::unique_ptr<char, void (*)(char*)> owned(text, [](char* buffer) { std::free(buffer); });
  std::string xml(text, static_cast<size_t>(bytes));
  while (!xml.empty() && xml.back() == '\0') xml.pop_back();
  return xml;
}

// What the kernel says of a GPU's NUMA node, against where hwloc found it.
void doubt_kernel(Topology& t) {
  for (const Gpu& gpu : t.gpus) {
    std::ifstream file("/sys/bus/pci/devices/" + gpu.bus_id + "/numa_node");
    int node = -1;
    const int found = t.roots[gpu.root].numa;
    if (!(file >> node) || node < 0 || found < 0 || node == found) continue;
    t.doubts.push_back(fmt::format(
        "the kernel puts GPU {} at NUMA node {}, but the CPUs near it are those of node {}",
        gpu.bus_id, node, found));
  }
}

void doubt_nccl_file(Topology& t) {
  const char* path = std::getenv("NCCL_TOPO_FILE");
  if (path == nullptr || *path == '\0') return;
  try {
    const std::vector<std::string> found = differences(t, read_topology(path));
    for (const std::string& difference : found) t.doubts.push_back("NCCL_TOPO_FILE: " + difference);
  } catch (const Error& error) {
    t.doubts.push_back(fmt::format("NCCL_TOPO_FILE can't be read: {}", error.what()));
  }
}

}  // namespace

Topology live_topology(Devices devices) {
  HwlocReading machine = read_hwloc_xml(export_machine(devices), "this machine");
  Topology& t = machine.topology;
  t.source = "this machine";
  NvmlAnswer nvml;
  if (devices == Devices::yes) {
    nvml = query_nvml();
    add_nvml(t, nvml);
  }
  finish(t, nvml.links);
  if (devices == Devices::yes) {
    doubt_kernel(t);
    doubt_nccl_file(t);
  }
  return std::move(machine.topology);
}

}  // namespace weft::parallel
