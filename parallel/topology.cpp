// What all sources of a topology share: order, guesses, doubts.
#include "parallel/topology.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <charconv>
#include <tuple>

#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace weft::parallel {
namespace {

struct KnownGpu {
  uint32_t device;
  const char* name;
};
constexpr KnownGpu kKnownGpus[] = {
    {0x1db8, "V100 SXM3 32GB"}, {0x1eb8, "T4"},
    {0x20b0, "A100 SXM4 40GB"}, {0x20b2, "A100 SXM4 80GB"},
    {0x20b5, "A100 PCIe 80GB"}, {0x20f1, "A100 PCIe 40GB"},
    {0x26b9, "L40S"},           {0x27b8, "L4"},
    {0x2321, "H100 NVL"},       {0x2330, "H100 SXM5 80GB"},
    {0x2331, "H100 PCIe"},      {0x2335, "H200 SXM5 141GB"},
    {0x2342, "GH200"},
};

constexpr size_t kMostGpus = 256;
constexpr size_t kMostNumaNodes = 256;
constexpr size_t kMostRoots = 1024;
constexpr size_t kMostCores = CpuSet::kMostCpus;

void check_sizes(const Topology& t) {
  const auto check = [&](size_t n, size_t most, const char* what) {
    if (n > most) throw input_error("{}: {} {}; at most {} are read", t.source, n, what, most);
  };
  check(t.gpus.size(), kMostGpus, "GPUs");
  check(t.numa.size(), kMostNumaNodes, "NUMA nodes");
  check(t.roots.size(), kMostRoots, "PCI roots");
  check(t.cores.size(), kMostCores, "cores");
}

// The beginning of a list that may be long.
std::string brief(const CpuSet& set) {
  constexpr size_t kMostText = 100;
  const std::string text = set.text();
  return text.size() <= kMostText ? text : text.substr(0, text.rfind(',', kMostText)) + ",…";
}

bool parse_hex(std::string_view text, size_t most_digits, uint32_t& value) {
  if (text.empty() || text.size() > most_digits) return false;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value, 16);
  return error == std::errc() && stop == end;
}

std::tuple<size_t, std::string_view> bus_order(const PciDevice& device) {
  return {device.bus_id.size(), device.bus_id};  // a domain of five digits comes after four
}

template <class Device>
void order(std::vector<Device>& devices, std::vector<std::string>& seen) {
  std::stable_sort(devices.begin(), devices.end(),
                   [](const Device& a, const Device& b) { return bus_order(a) < bus_order(b); });
  for (const Device& device : devices) seen.push_back(device.bus_id);
}

void order_devices(Topology& t) {
  std::vector<std::string> seen;
  order(t.gpus, seen);
  order(t.cards, seen);
  order(t.other_gpus, seen);
  std::sort(seen.begin(), seen.end());
  const auto twice = std::adjacent_find(seen.begin(), seen.end());
  if (twice != seen.end()) throw input_error("{}: device {} is there twice", t.source, *twice);
}

// A mask that names CPUs which the machine lacks was written for another machine.
void keep_to_machine(Topology& t, CpuSet& set, const std::string& whose) {
  const CpuSet beyond = set - t.cpus;
  if (beyond.empty()) return;
  set = set & t.cpus;
  t.doubts.push_back(
      fmt::format("{} names the CPUs {}, which are not among those that may be used ({}): {}",
                  whose, beyond.text(), t.cpus.text(),
                  set.empty() ? "none is left, so all are taken" : "they are left out"));
}

void keep_to_usable(Topology& t) {
  for (NumaNode& node : t.numa) keep_to_machine(t, node.cpus, fmt::format("NUMA node {}", node.id));
  for (PciRoot& root : t.roots) keep_to_machine(t, root.cpus, "PCI root " + root.name);
  for (CpuSet& core : t.cores) core = core & t.cpus;
  std::erase_if(t.cores, [](const CpuSet& core) { return core.empty(); });
}

// Linux numbers the second threads of all cores after the first ones, so two runs of equal length
// are most likely one run of cores.
void guess_cores_of(const CpuSet& near, std::vector<CpuSet>& cores) {
  const auto runs = near.runs();
  const auto length = [&](size_t i) { return runs[i].second - runs[i].first; };
  if (runs.size() == 2 && length(0) == length(1)) {
    for (size_t i = 0; i < length(0); ++i) {
      CpuSet core;
      core.add(runs[0].first + i);
      core.add(runs[1].first + i);
      cores.push_back(std::move(core));
    }
    return;
  }
  for (const size_t cpu : near.cpus()) {
    CpuSet core;
    core.add(cpu);
    cores.push_back(std::move(core));
  }
}

void guess_cores(Topology& t) {
  if (!t.cores.empty()) return;
  t.has_cores = false;
  CpuSet rest = t.cpus;
  for (const NumaNode& node : t.numa) {
    guess_cores_of(node.cpus & rest, t.cores);
    rest = rest - node.cpus;
  }
  guess_cores_of(rest, t.cores);
  const size_t n_pairs = static_cast<size_t>(std::count_if(
      t.cores.begin(), t.cores.end(), [](const CpuSet& c) { return c.count() == 2; }));
  t.doubts.push_back(fmt::format("no cores are named: {} are guessed from the numbers of {} CPUs{}",
                                 t.cores.size(), t.cpus.count(),
                                 n_pairs > 0 ? " (those of a second run as second threads)" : ""));
}

void doubt_numa_masks(Topology& t) {
  for (size_t i = 0; i < t.numa.size(); ++i)
    for (size_t k = 0; k < i; ++k)
      if (t.numa[k].cpus.intersects(t.numa[i].cpus))
        t.doubts.push_back(fmt::format("NUMA nodes {} and {} both claim the CPUs {}", t.numa[k].id,
                                       t.numa[i].id, brief(t.numa[k].cpus & t.numa[i].cpus)));
}

void doubt_localities(Topology& t) {
  std::vector<std::string> unknown, cut_off;
  for (const Gpu& gpu : t.gpus) {
    if (t.roots[gpu.root].cpus.empty())
      cut_off.push_back(gpu.bus_id);
    else if (t.roots[gpu.root].numa < 0 && t.numa.size() > 1)
      unknown.push_back(gpu.bus_id);
  }
  if (!unknown.empty())
    t.doubts.push_back(fmt::format(
        "the NUMA node of GPU {} is not known (-1, or several): any CPU may be far from it",
        fmt::join(unknown, ", ")));
  if (!cut_off.empty())
    t.doubts.push_back(fmt::format("no CPU that may be used is known to be near GPU {}",
                                   fmt::join(cut_off, ", ")));
}

void doubt_flat_bus(Topology& t) {
  if (t.gpus.size() < 2) return;
  const bool flat = std::all_of(t.gpus.begin(), t.gpus.end(), [&](const Gpu& gpu) {
    return gpu.switches.empty() && gpu.root == t.gpus.front().root;
  });
  if (!flat) return;
  t.doubts.push_back(fmt::format(
      "all {} GPUs hang from PCI root {} without a bridge, as on a virtual machine's flat bus: how "
      "near they are to each other is not known",
      t.gpus.size(), t.roots[t.gpus.front().root].name));
}

void link_gpus(Topology& t, std::span<const NvLinkEnd> links) {
  const size_t n = t.gpus.size();
  t.nvlinks = nvlink_matrix(t, links);
  if (!t.nvlinks.empty() || t.n_nvswitches == 0 || n < 2) return;
  t.nvlinks.assign(n, std::vector<unsigned>(n, 1));
  for (size_t i = 0; i < n; ++i) t.nvlinks[i][i] = 0;
  t.nvlinks_counted = false;
  t.nvlink_source = fmt::format("{} NVSwitches on the PCI bus", t.n_nvswitches);
}

void doubt_other_gpus(Topology& t) {
  if (t.other_gpus.empty()) return;
  const auto n_of = [&](uint32_t vendor) {
    return std::count_if(t.other_gpus.begin(), t.other_gpus.end(),
                         [&](const PciDevice& gpu) { return gpu.vendor == vendor; });
  };
  std::vector<std::string> texts;
  if (n_of(kAmd) > 0) texts.push_back(fmt::format("{} of AMD", n_of(kAmd)));
  if (n_of(kIntel) > 0) texts.push_back(fmt::format("{} of Intel", n_of(kIntel)));
  t.doubts.push_back(fmt::format("GPUs that weft can't use: {}", fmt::join(texts, ", ")));
}

}  // namespace

CpuSet nearest_cpus(const Topology& topology, const PciDevice& device) {
  const CpuSet& near = topology.roots[device.root].cpus;
  return near.empty() ? topology.cpus : near;
}

std::string normal_bus_id(std::string_view text) {
  const std::vector<std::string> parts = split(text, ':');
  if (parts.size() < 2 || parts.size() > 3) return {};
  const std::vector<std::string> last = split(parts.back(), '.');
  uint32_t domain = 0, bus = 0, device = 0, function = 0;
  if (parts.size() == 3 && !parse_hex(parts[0], 8, domain)) return {};
  if (!parse_hex(parts[parts.size() - 2], 2, bus) || last.size() != 2) return {};
  if (!parse_hex(last[0], 2, device) || !parse_hex(last[1], 1, function)) return {};
  return fmt::format("{:04x}:{:02x}:{:02x}.{:x}", domain, bus, device, function);
}

std::string gpu_name(uint32_t vendor, uint32_t device) {
  const auto* known = std::find_if(std::begin(kKnownGpus), std::end(kKnownGpus),
                                   [&](const KnownGpu& gpu) { return gpu.device == device; });
  if (vendor == kNvidia && known != std::end(kKnownGpus)) return known->name;
  return fmt::format("{:04x}:{:04x}", vendor, device);
}

bool is_gpu_class(uint32_t pci_class) {
  return pci_class == 0x0300 || pci_class == 0x0302 || pci_class == 0x0380 || pci_class == 0x1200;
}

bool is_network_class(uint32_t pci_class) {
  return pci_class == 0x0200 || pci_class == 0x0207 || pci_class == 0x0280;
}

void finish(Topology& t, std::span<const NvLinkEnd> links) {
  if (t.cpus.empty()) throw input_error("{}: names no CPUs", t.source);
  check_sizes(t);
  order_devices(t);
  std::sort(t.numa.begin(), t.numa.end(),
            [](const NumaNode& a, const NumaNode& b) { return a.id < b.id; });
  keep_to_usable(t);
  guess_cores(t);
  link_gpus(t, links);
  doubt_numa_masks(t);
  doubt_localities(t);
  doubt_flat_bus(t);
  doubt_other_gpus(t);
}

}  // namespace weft::parallel
