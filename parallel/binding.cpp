// The launcher's word first, MPI's later; the placement itself is placement.h's.
#include "parallel/binding.h"

#include <algorithm>
#include <array>
#include <cstdlib>

#include "parallel/gather.h"
#include "parallel/gpu_assignment.h"
#include "parallel/process_binding.h"
#include "parallel/topology_sources.h"
#include "parallel/visible_devices.h"
#include "runtime/base/error.h"

namespace weft::parallel {
namespace {

void add(std::vector<std::string>& to, const std::vector<std::string>& more) {
  to.insert(to.end(), more.begin(), more.end());
}

void read_visible(Binding& binding) {
  if (!binding.options.use_gpus) return;
  const char* value = std::getenv("CUDA_VISIBLE_DEVICES");
  const char* order = std::getenv("CUDA_DEVICE_ORDER");
  VisibleDevices visible =
      visible_devices(binding.topology, value ? std::optional<std::string>(value) : std::nullopt,
                      order ? order : "");
  setenv("CUDA_DEVICE_ORDER", "PCI_BUS_ID", 1);
  binding.visible_gpus = std::move(visible.gpus);
  add(binding.warnings, visible.doubts);
}

void apply(Binding& binding, ProcessBinder& binder, const RankPlace& place) {
  const bool chosen =
      binding.before != binding.allowed || (binding.launch && binding.launch->asked_unbound);
  binding.kept = !place.gpu && chosen;
  const CpuSet wanted = place.binds && !binding.kept ? place.cpus : binding.before;
  if (binder.bound() != wanted) add(binding.warnings, binder.bind(wanted));
  if (!binding.kept && !place.memory_nodes.empty() && binding.topology.numa.size() > 1)
    add(binding.warnings, binder.prefer_memory(place.memory_nodes));
}

void look_and_bind(Binding& binding) {
  ProcessBinder binder;
  binding.before = binder.bound();
  binding.topology = live_topology(binding.options.use_gpus ? Devices::yes : Devices::no);
  if (binding.options.use_gpus) add(binding.warnings, binding.topology.doubts);
  read_visible(binding);
  binding.allowed = binder.allowed();
  if (!binding.launch) return;
  binding.place = guess_place(binding.topology, binding.options, binding.visible_gpus,
                              binding.launch->local_rank, binding.launch->local_size);
  if (binding.place) apply(binding, binder, *binding.place);
}

// What a rank tells the others of its host.
struct View {
  static constexpr size_t kWords = 8;
  static constexpr size_t kMostGpus = kWords * 64;
  int node = 0;
  bool looked = false;
  std::array<uint64_t, kWords> visible{};  // a bit a GPU

  std::vector<size_t> gpus() const {
    std::vector<size_t> all;
    for (size_t i = 0; i < kMostGpus; ++i)
      if (visible[i / 64] >> i % 64 & 1) all.push_back(i);
    return all;
  }
};

View view_of(const MpiSession& session, const Binding& binding) {
  View view;
  view.node = session.node();
  view.looked = binding.looked();
  for (const size_t gpu : binding.visible_gpus)
    if (gpu < View::kMostGpus) view.visible[gpu / 64] |= uint64_t{1} << gpu % 64;
  return view;
}

bool same_place(const std::optional<RankPlace>& a, const RankPlace& b) {
  return a && a->gpu == b.gpu && a->binds == b.binds && a->cpus == b.cpus &&
         a->memory_nodes == b.memory_nodes;
}

}  // namespace

Binding bind_early(const BindOptions& options) {
  Binding binding;
  binding.options = options;
  if (!options.bind) return binding;
  binding.launch = launch_place([](const char* name) { return std::getenv(name); });
  if (!binding.launch && !started_by_launcher()) binding.launch = LaunchPlace{0, 1, "none", false};
  try {
    look_and_bind(binding);
  } catch (const Error& error) {
    binding.warnings.push_back(fmt::format("this rank is not bound: {}", error.what()));
  }
  return binding;
}

std::optional<RankPlace> guess_place(const Topology& t, const BindOptions& options,
                                     const std::vector<size_t>& visible_gpus, size_t rank,
                                     size_t size) {
  PlacementRequest request{size, options.use_gpus, options.share_gpus, {}, visible_gpus};
  const bool go_round = !options.use_gpus || visible_gpus.empty() || size <= visible_gpus.size();
  if (go_round || options.share_gpus) return place(t, request).ranks[rank];
  // One GPU for each rank, chosen by the launcher: the others take the host's other ones.
  if (visible_gpus.size() != 1 || size != t.gpus.size()) return std::nullopt;
  std::vector<std::optional<size_t>> gpus;
  for (size_t gpu = 0; gpu < size; ++gpu) gpus.emplace_back(gpu);
  return place_on(t, gpus).ranks[visible_gpus.front()];
}

RankPlace settle_place(const Topology& t, const BindOptions& options,
                       std::span<const std::vector<size_t>> visible_by_rank,
                       std::span<const size_t> groups, size_t rank) {
  const std::vector<size_t>& first = visible_by_rank.front();
  const bool alike = std::all_of(visible_by_rank.begin(), visible_by_rank.end(),
                                 [&](const std::vector<size_t>& gpus) { return gpus == first; });
  if (alike || !options.use_gpus) {
    const PlacementRequest request{visible_by_rank.size(),
                                   options.use_gpus,
                                   options.share_gpus,
                                   {groups.begin(), groups.end()},
                                   first};
    return place(t, request).ranks[rank];
  }
  std::vector<std::optional<size_t>> gpus;
  for (size_t gpu : match_gpus(visible_by_rank)) {
    const std::vector<size_t>& seen = visible_by_rank[gpus.size()];
    if (gpu == SIZE_MAX && seen.empty())
      throw input_error("local rank {} sees no GPU, others do: see its CUDA_VISIBLE_DEVICES",
                        gpus.size());
    if (gpu == SIZE_MAX && !options.share_gpus)
      throw input_error(
          "local rank {} sees only GPUs that other ranks take ({} among them): give each rank its "
          "own, or let them share one with --share-gpus",
          gpus.size(), t.gpus[seen.front()].bus_id);
    gpus.emplace_back(gpu == SIZE_MAX ? seen.front() : gpu);
  }
  return place_on(t, gpus).ranks[rank];
}

void verify_binding(const MpiSession& session, Binding& binding, std::span<const size_t> groups) {
  std::vector<std::vector<size_t>> visible_by_rank;
  bool all_looked = true;
  for (const View& view : gather(session, view_of(session, binding))) {
    if (view.node != session.node()) continue;
    all_looked = all_looked && view.looked;
    visible_by_rank.push_back(view.gpus());
  }
  std::optional<RankPlace> place;
  agree(session, [&] {
    if (!all_looked) return;
    place = settle_place(binding.topology, binding.options, visible_by_rank, groups,
                         static_cast<size_t>(session.node_rank()));
  });
  if (!place) return;
  if (binding.launch && (binding.launch->local_rank != static_cast<size_t>(session.node_rank()) ||
                         binding.launch->local_size != static_cast<size_t>(session.node_size())))
    binding.warnings.push_back(
        fmt::format("{} said local rank {} of {}, MPI says {} of {}: bound anew",
                    binding.launch->launcher, binding.launch->local_rank,
                    binding.launch->local_size, session.node_rank(), session.node_size()));
  if (same_place(binding.place, *place)) {
    binding.place = std::move(place);
    return;
  }
  try {
    ProcessBinder binder;
    apply(binding, binder, *place);
  } catch (const Error& error) {
    binding.warnings.push_back(fmt::format("this rank is not bound: {}", error.what()));
  }
  binding.place = std::move(place);
}

std::vector<size_t> local_groups(const DeviceMesh& mesh, const MpiSession& session) {
  std::vector<size_t> sizes;
  size_t last_stage = SIZE_MAX;
  for (int rank = 0; rank < session.size(); ++rank) {
    if (session.node_of()[static_cast<size_t>(rank)] != session.node()) continue;
    const size_t stage = mesh.stage_of(rank);
    if (sizes.empty() || stage != last_stage) sizes.push_back(0);
    ++sizes.back();
    last_stage = stage;
  }
  return sizes;
}

}  // namespace weft::parallel
