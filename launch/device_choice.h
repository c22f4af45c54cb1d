// What each rank runs on: the GPU that its place gives it, or the CPU.
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "parallel/binding.h"
#include "parallel/gpu_communicator.h"
#include "parallel/mpi_session.h"

namespace CLI {
class App;
}

namespace weft::launch {

enum class BackendChoice { automatic, cpu, cuda };

struct DeviceOptions {
  BackendChoice backend = BackendChoice::automatic;
  bool share_gpus = false;
  bool graphs = true;
  parallel::GpuTransport transport = parallel::GpuTransport::automatic;
};

// --backend, --share-gpus, --gpu-transport: what is chosen before anything runs.
void add_device_choice(CLI::App& command, DeviceOptions& options);
// These and --no-graphs.
void add_device_options(CLI::App& command, DeviceOptions& options);

// For bind_early: before MPI, and before CUDA may be touched.
bool may_use_gpus(const DeviceOptions& options);

struct Device {
  std::optional<int> gpu;    // CUDA's number; none: the CPU
  std::string name = "CPU";  // in errors: "GPU 0000:9d:00.0"
  std::string product;       // of the GPU: "NVIDIA H200"
  size_t n_sharing = 1;      // ranks of the job on this GPU
};

// After verify_binding; a collective of all ranks. All ranks run on GPUs or none does: where GPUs
// are asked for and a rank has none, or has one that this build has no code for, all throw the same
// AgreedError; without being asked, all run on CPUs then, and rank 0 says why.
Device choose_device(const parallel::MpiSession& session, const parallel::Binding& binding,
                     const DeviceOptions& options);

// Whether ranks may talk through NCCL.
bool takes_nccl(const Device& device, int n_ranks, const DeviceOptions& options);

// What CUDA, its libraries and captured graphs take of a GPU beside what a rank's plan counts.
inline constexpr size_t kGpuReservedBytes = size_t{1} << 30;

// Memory that a rank may plan with on its GPU: its share of what is free, less what CUDA, its
// kernels and captured graphs take. A collective of all ranks, each with its GPU current.
size_t gpu_rank_memory(const parallel::MpiSession& session, const Device& device);

}  // namespace weft::launch
