// Binding through hwloc, which walks over the threads of the process.
#include "parallel/process_binding.h"

#include <fmt/ranges.h>

#include <cerrno>
#include <cstring>

#include "runtime/base/error.h"

namespace weft::parallel {
namespace {

CpuSet cpus_in(hwloc_const_bitmap_t bitmap) {
  CpuSet set;
  for (int cpu = hwloc_bitmap_first(bitmap); cpu >= 0; cpu = hwloc_bitmap_next(bitmap, cpu)) {
    if (static_cast<size_t>(cpu) >= CpuSet::kMostCpus) break;  // an endless set too
    set.add(static_cast<size_t>(cpu));
  }
  return set;
}

std::string why() { return std::strerror(errno); }

}  // namespace

ProcessBinder::ProcessBinder() {
  hwloc_topology_set_cache_types_filter(topology_.get(), HWLOC_TYPE_FILTER_KEEP_NONE);
  topology_.load();
}

CpuSet ProcessBinder::allowed() const {
  return cpus_in(hwloc_topology_get_allowed_cpuset(topology_.get()));
}

CpuSet ProcessBinder::bound() const {
  const HwlocBitmap bitmap;
  if (hwloc_get_cpubind(topology_.get(), bitmap.get(), HWLOC_CPUBIND_PROCESS) != 0)
    return allowed();
  return cpus_in(bitmap.get());
}

std::vector<std::string> ProcessBinder::bind(const CpuSet& cpus) {
  const HwlocBitmap bitmap;
  for (const size_t cpu : cpus.cpus()) hwloc_bitmap_set(bitmap.get(), static_cast<unsigned>(cpu));
  if (hwloc_set_cpubind(topology_.get(), bitmap.get(), HWLOC_CPUBIND_PROCESS) != 0)
    return {fmt::format("cannot bind to CPUs {}: {}", cpus.text(), why())};
  const CpuSet got = bound();
  if (got == cpus) return {};
  return {fmt::format("asked for CPUs {}, the kernel gave {}", cpus.text(), got.text())};
}

std::vector<std::string> ProcessBinder::prefer_memory(const std::vector<int>& nodes) {
  const HwlocBitmap asked;
  for (const int node : nodes) hwloc_bitmap_set(asked.get(), static_cast<unsigned>(node));
  const std::string names = fmt::format("{}", fmt::join(nodes, ","));
  constexpr int kFlags = HWLOC_MEMBIND_THREAD | HWLOC_MEMBIND_BYNODESET;  // preferred: not STRICT
  if (hwloc_set_membind(topology_.get(), asked.get(), HWLOC_MEMBIND_BIND, kFlags) != 0)
    return {fmt::format("memory is not bound to NUMA node {}: {} (a container may forbid it)",
                        names, why())};
  const HwlocBitmap got;
  hwloc_membind_policy_t policy{};
  if (hwloc_get_membind(topology_.get(), got.get(), &policy, kFlags) != 0)
    return {fmt::format("memory binding to NUMA node {} can't be read back: {}", names, why())};
  if (hwloc_bitmap_isincluded(got.get(), asked.get())) return {};
  return {fmt::format("asked for memory of NUMA node {}, the kernel gives others", names)};
}

}  // namespace weft::parallel
