// Memory of a GPU that other processes of this host map, by CUDA IPC.
#pragma once

#include <array>
#include <cstddef>
#include <utility>

#include "kernels/gpu_device.h"

namespace weft::kernels {

// CUDA shares whole allocations, and packs small ones into pages of this size: what is exported
// takes whole pages, or a peer would see its neighbours.
inline constexpr size_t kIpcPageBytes = 2 << 20;

struct GpuIpcHandle {
  std::array<std::byte, 64> bytes{};  // of cudaIpcMemHandle_t; good on this host
};

// `buffer` of a multiple of kIpcPageBytes. Every importer must have let go of it before it is
// freed.
GpuIpcHandle export_gpu_memory(const GpuBuffer& buffer);

// Another process's buffer, mapped for the current GPU. Throws Error where the two GPUs don't reach
// each other, or the process is in another container.
class GpuImport {
 public:
  explicit GpuImport(const GpuIpcHandle& handle);
  ~GpuImport();
  GpuImport(GpuImport&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  GpuImport& operator=(GpuImport&& other) noexcept {
    std::swap(data_, other.data_);
    return *this;
  }
  std::byte* data() const { return data_; }

 private:
  std::byte* data_ = nullptr;
};

}  // namespace weft::kernels
