// Devices by their way down from the CPUs.
#include "launch/topo_tree.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "runtime/base/text.h"

namespace weft::launch {
namespace {

using parallel::Gpu;
using parallel::NetworkCard;
using parallel::PciDevice;
using parallel::Topology;
using Kind = TopoNode::Kind;

std::string joined(const std::vector<std::string>& parts) {
  std::vector<std::string> shown;
  std::copy_if(parts.begin(), parts.end(), std::back_inserter(shown),
               [](const std::string& part) { return !part.empty(); });
  return fmt::format("{}", fmt::join(shown, ", "));
}

std::string speed(const PciDevice& device) {
  return device.link_gbps > 0 ? fmt::format("{:.0f} GB/s", device.link_gbps) : std::string();
}

// "1 core", "2 cores".
std::string count_of(size_t n, const char* what) {
  return fmt::format("{} {}{}", n, what, n == 1 ? "" : "s");
}

TopoNode node_of(const Gpu& gpu, size_t index) {
  const std::string memory = gpu.memory_bytes > 0 ? human_bytes(gpu.memory_bytes) : std::string();
  const std::string parts =
      gpu.mig_uuids.empty() ? std::string() : fmt::format("{} MIG instances", gpu.mig_uuids.size());
  const std::string hidden = gpu.usable ? "" : "not shown by the driver";
  return {Kind::gpu,
          fmt::format("GPU {}", index),
          joined({gpu.bus_id, gpu.name, memory, speed(gpu), parts, hidden}),
          index,
          {}};
}

TopoNode node_of(const NetworkCard& card, size_t index) {
  const std::string rdma = fmt::format("{}", fmt::join(card.rdma, " "));
  const std::string interfaces = fmt::format("{}", fmt::join(card.interfaces, " "));
  const bool known = card.vendor != 0;
  return {Kind::card,
          "card",
          joined({card.bus_id, rdma, interfaces, known ? card.name : "", speed(card)}),
          index,
          {}};
}

TopoNode node_of(const PciDevice& gpu) {
  return {Kind::other, "other GPU", joined({gpu.bus_id, gpu.name, speed(gpu)}), 0, {}};
}

// The bridge at the end of the device's way, made where it isn't there.
TopoNode& bridge_for(TopoNode& root, const PciDevice& device) {
  TopoNode* at = &root;
  for (const std::string& bus_id : device.switches) {
    auto found = std::find_if(at->children.begin(), at->children.end(), [&](const TopoNode& child) {
      return child.kind == Kind::bridge && child.detail == bus_id;
    });
    if (found == at->children.end()) {
      at->children.push_back({Kind::bridge, "switch", bus_id, 0, {}});
      found = at->children.end() - 1;
    }
    at = &*found;
  }
  return *at;
}

void simplify(TopoNode& node) {
  for (TopoNode& child : node.children) {
    while (child.kind == Kind::bridge && child.children.size() == 1) {
      TopoNode only = std::move(child.children.front());
      if (only.kind == Kind::bridge) only.detail = child.detail + " > " + only.detail;
      child = std::move(only);
    }
    simplify(child);
  }
}

template <class Devices>
void add_devices(const Devices& devices, std::vector<TopoNode>& roots) {
  for (size_t i = 0; i < devices.size(); ++i)
    bridge_for(roots[devices[i].root], devices[i]).children.push_back(node_of(devices[i], i));
}

std::vector<TopoNode> root_nodes(const Topology& t) {
  std::vector<TopoNode> roots;
  for (const parallel::PciRoot& root : t.roots) {
    const std::string cpus = root.cpus.empty() ? "CPUs not known" : "CPUs " + root.cpus.text();
    roots.push_back({Kind::root, "root " + root.name, cpus, 0, {}});
  }
  add_devices(t.gpus, roots);
  add_devices(t.cards, roots);
  for (const PciDevice& gpu : t.other_gpus)
    bridge_for(roots[gpu.root], gpu).children.push_back(node_of(gpu));
  for (TopoNode& root : roots) simplify(root);
  return roots;
}

TopoNode numa_node(const Topology& t, const parallel::NumaNode& node) {
  const auto n_cores =
      std::count_if(t.cores.begin(), t.cores.end(),
                    [&](const parallel::CpuSet& core) { return core.intersects(node.cpus); });
  const std::string memory = node.memory_bytes > 0 ? human_bytes(node.memory_bytes) : std::string();
  return {
      Kind::numa,
      fmt::format("NUMA {}", node.id),
      joined({"CPUs " + node.cpus.text(), count_of(static_cast<size_t>(n_cores), "core"), memory}),
      0,
      {}};
}

}  // namespace

TopoNode topo_tree(const Topology& t) {
  TopoNode machine{Kind::machine, t.source, machine_text(t), 0, {}};
  std::vector<TopoNode> roots = root_nodes(t);
  const auto take_roots = [&](TopoNode& parent, auto&& belongs) {
    for (size_t i = 0; i < roots.size(); ++i)
      if (belongs(t.roots[i]) && !roots[i].children.empty())
        parent.children.push_back(std::move(roots[i]));
  };
  for (const parallel::NumaNode& node : t.numa) {
    TopoNode numa = numa_node(t, node);
    take_roots(numa, [&](const parallel::PciRoot& root) { return root.numa == node.id; });
    machine.children.push_back(std::move(numa));
  }
  const auto homeless = [&](const parallel::PciRoot& root) {
    return std::none_of(t.numa.begin(), t.numa.end(),
                        [&](const parallel::NumaNode& node) { return node.id == root.numa; });
  };
  TopoNode nowhere{Kind::numa, "NUMA node not known", "", 0, {}};
  take_roots(nowhere, homeless);
  if (!nowhere.children.empty()) machine.children.push_back(std::move(nowhere));
  return machine;
}

std::string machine_text(const Topology& t) {
  const std::string packages = t.n_packages > 0 ? count_of(t.n_packages, "package") : std::string();
  return joined({t.product, packages,
                 count_of(t.cores.size(), "core") + (t.has_cores ? "" : " (guessed)"),
                 count_of(t.cpus.count(), "CPU"), count_of(t.numa.size(), "NUMA node"),
                 count_of(t.gpus.size(), "GPU")});
}

std::string ranks_on(const parallel::Placement& placement, size_t gpu) {
  std::vector<size_t> ranks;
  for (size_t rank = 0; rank < placement.ranks.size(); ++rank)
    if (placement.ranks[rank].gpu == gpu) ranks.push_back(rank);
  if (ranks.empty()) return {};
  return fmt::format("rank{} {}", ranks.size() > 1 ? "s" : "", fmt::join(ranks, ", "));
}

}  // namespace weft::launch
