// GPUs are counted as CUDA counts them by bus id; a place is found again by its bus id.
#include "launch/device_choice.h"

#include <fmt/ranges.h>
#include <CLI/CLI.hpp>

#include <algorithm>
#include <array>
#include <cstring>
#include <span>

#include "kernels/gpu_device.h"
#include "kernels/gpu_devices.h"
#include "launch/gpu_pick.h"
#include "parallel/gather.h"
#include "runtime/base/error.h"
#include "runtime/base/log.h"
#include "runtime/base/text.h"

namespace weft::launch {
namespace {

using kernels::GpuQuery;

constexpr std::string_view kBackendNames[] = {"auto", "cpu", "cuda"};
constexpr std::string_view kTransportNames[] = {"auto", "nccl", "peer", "host"};

Device find_gpu(const parallel::MpiSession& session, const parallel::Binding& binding,
                const DeviceOptions& options) {
  const GpuQuery query = kernels::list_gpus();
  RankOnHost rank;
  rank.rank = static_cast<size_t>(session.node_rank());
  rank.size = static_cast<size_t>(session.node_size());
  if (binding.place && binding.place->gpu)
    rank.bus_id = binding.topology.gpus[*binding.place->gpu].bus_id;
  const size_t index = pick_gpu(query, kernels::built_capabilities(), rank, options.share_gpus);
  Device device;
  device.gpu = static_cast<int>(index);
  device.name = "GPU " + query.gpus[index].pci_bus_id;
  device.product = query.gpus[index].name;
  return device;
}

// Ranks of the same host with the same GPU.
size_t n_sharing(const parallel::MpiSession& session, const Device& device) {
  struct Place {
    int node;
    std::array<char, 32> bus;
  };
  Place mine{session.node(), {}};
  std::strncpy(mine.bus.data(), device.name.c_str(), mine.bus.size() - 1);
  size_t n = 0;
  for (const Place& other : parallel::gather(session, mine))
    n += other.node == mine.node && other.bus == mine.bus;
  return n;
}

// Which of the names `text` is.
size_t place_among(std::span<const std::string_view> names, std::string_view flag,
                   const std::string& text) {
  const auto found = std::find(names.begin(), names.end(), text);
  if (found == names.end())
    throw input_error("{} \"{}\" is none of {}{}", flag, text, fmt::join(names, ", "),
                      did_you_mean(text, names));
  return static_cast<size_t>(found - names.begin());
}

}  // namespace

void add_device_choice(CLI::App& command, DeviceOptions& options) {
  command
      .add_option_function<std::string>(
          "--backend",
          [&options](const std::string& text) {
            options.backend =
                static_cast<BackendChoice>(place_among(kBackendNames, "--backend", text));
          },
          "auto (a GPU for each rank where there are some; default), cpu or cuda")
      ->type_name("NAME");
  command
      .add_option_function<std::string>(
          "--gpu-transport",
          [&options](const std::string& text) {
            options.transport = static_cast<parallel::GpuTransport>(
                place_among(kTransportNames, "--gpu-transport", text));
          },
          "What ranks on GPUs talk through: auto (NCCL and peer memory where they can be had; "
          "default), nccl, peer (memory, and the host's behind it) or host")
      ->type_name("NAME");
  command.add_flag("--share-gpus", options.share_gpus,
                   "Several ranks may take the same GPU: for tests");
}

void add_device_options(CLI::App& command, DeviceOptions& options) {
  add_device_choice(command, options);
  command.add_flag("!--no-graphs", options.graphs,
                   "On GPUs, enqueue decode steps kernel by kernel instead of as a captured graph");
}

bool may_use_gpus(const DeviceOptions& options) {
  if (options.backend == BackendChoice::cpu) return false;
  return options.backend == BackendChoice::cuda || kernels::gpu_driver_loaded();
}

Device choose_device(const parallel::MpiSession& session, const parallel::Binding& binding,
                     const DeviceOptions& options) {
  Device device;
  std::string why;
  if (options.backend == BackendChoice::cpu) {
    why = "--backend cpu";
  } else {
    try {
      if (may_use_gpus(options)) device = find_gpu(session, binding, options);
    } catch (const Error& error) {
      why = error.what();
    }
  }
  const std::vector<bool> have = [&] {
    std::vector<bool> all;
    for (const char one : parallel::gather(session, static_cast<char>(device.gpu.has_value())))
      all.push_back(one != 0);
    return all;
  }();
  const bool wanted = options.backend == BackendChoice::cuda;
  parallel::agree(session, [&] {
    if (wanted && !device.gpu) throw input_error("--backend cuda: {}", why);
  });
  if (std::find(have.begin(), have.end(), false) == have.end()) {
    device.n_sharing = n_sharing(session, device);
    return device;
  }
  if (options.backend == BackendChoice::automatic && (device.gpu || !why.empty()))
    spdlog::warn("running on the CPU: {}", why.empty() ? "other ranks have no GPU" : why);
  return {};
}

bool takes_nccl(const Device& device, int n_ranks, const DeviceOptions& options) {
  if (!device.gpu || n_ranks == 1) return false;
  if (options.transport == parallel::GpuTransport::nccl) return true;
  return options.transport == parallel::GpuTransport::automatic && device.n_sharing == 1;
}

size_t gpu_rank_memory(const parallel::MpiSession& session, const Device& device) {
  const size_t free_bytes = kernels::gpu_memory().free_bytes;
  // The ranks' contexts are all there when each has asked.
  const std::vector<size_t> all = parallel::gather(session, free_bytes);
  const size_t least = *std::min_element(all.begin(), all.end());
  const size_t share = least / device.n_sharing;
  return share > kGpuReservedBytes ? share - kGpuReservedBytes : 0;
}

}  // namespace weft::launch
