// NUMA nodes by number, GPUs by bus id.
#include "parallel/topology_compare.h"

#include <fmt/format.h>

#include <algorithm>

namespace weft::parallel {
namespace {

template <class Item, class Key>
const Item* find_by(const std::vector<Item>& items, Key Item::*key, const Key& wanted) {
  const auto found = std::find_if(items.begin(), items.end(),
                                  [&](const Item& item) { return item.*key == wanted; });
  return found == items.end() ? nullptr : &*found;
}

const Gpu* find_gpu(const Topology& t, const std::string& bus_id) {
  const auto found = std::find_if(t.gpus.begin(), t.gpus.end(),
                                  [&](const Gpu& gpu) { return gpu.bus_id == bus_id; });
  return found == t.gpus.end() ? nullptr : &*found;
}

}  // namespace

std::vector<std::string> differences(const Topology& machine, const Topology& file) {
  std::vector<std::string> texts;
  for (const NumaNode& node : file.numa) {
    const NumaNode* here = find_by(machine.numa, &NumaNode::id, node.id);
    const CpuSet named = node.cpus & machine.cpus;
    if (here == nullptr)
      texts.push_back(
          fmt::format("{} has a NUMA node {}, this machine does not", file.source, node.id));
    else if (!node.cpus.empty() && named != here->cpus)
      texts.push_back(fmt::format("{} gives NUMA node {} the CPUs {}, this machine {}", file.source,
                                  node.id, node.cpus.text(), here->cpus.text()));
  }
  for (const Gpu& gpu : file.gpus) {
    const Gpu* here = find_gpu(machine, gpu.bus_id);
    if (here == nullptr) {
      texts.push_back(
          fmt::format("{} has a GPU {}, this machine does not", file.source, gpu.bus_id));
      continue;
    }
    const int theirs = file.roots[gpu.root].numa;
    const int ours = machine.roots[here->root].numa;
    if (theirs >= 0 && ours >= 0 && theirs != ours)
      texts.push_back(fmt::format("{} puts GPU {} near NUMA node {}, this machine near {}",
                                  file.source, gpu.bus_id, theirs, ours));
  }
  for (const Gpu& gpu : machine.gpus)
    if (find_gpu(file, gpu.bus_id) == nullptr)
      texts.push_back(fmt::format("{} lacks GPU {} of this machine", file.source, gpu.bus_id));
  return texts;
}

}  // namespace weft::parallel
