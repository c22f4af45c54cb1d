// CUDA IPC on the runtime's API.
#include "kernels/gpu_ipc.h"

#include <cstring>

#include "kernels/cuda_check.h"

namespace weft::kernels {

GpuIpcHandle export_gpu_memory(const GpuBuffer& buffer) {
  cudaIpcMemHandle_t handle;
  check(cudaIpcGetMemHandle(&handle, buffer.data()), "cudaIpcGetMemHandle");
  GpuIpcHandle exported;
  static_assert(sizeof handle == sizeof exported.bytes);
  std::memcpy(exported.bytes.data(), &handle, sizeof handle);
  return exported;
}

GpuImport::GpuImport(const GpuIpcHandle& exported) {
  cudaIpcMemHandle_t handle;
  std::memcpy(&handle, exported.bytes.data(), sizeof handle);
  void* data = nullptr;
  check(cudaIpcOpenMemHandle(&data, handle, cudaIpcMemLazyEnablePeerAccess),
        "cudaIpcOpenMemHandle");
  data_ = static_cast<std::byte*>(data);
}

GpuImport::~GpuImport() {
  if (data_ != nullptr) cudaIpcCloseMemHandle(data_);
}

}  // namespace weft::kernels
