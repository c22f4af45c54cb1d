// CUDA IPC in a build without a CUDA toolkit: there is no memory to share.
#include "kernels/gpu_ipc.h"
#include "runtime/base/error.h"

namespace weft::kernels {

GpuIpcHandle export_gpu_memory(const GpuBuffer&) { throw run_error("weft was built without CUDA"); }
GpuImport::GpuImport(const GpuIpcHandle&) { throw run_error("weft was built without CUDA"); }
GpuImport::~GpuImport() = default;

}  // namespace weft::kernels
