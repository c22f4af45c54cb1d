// Asks the CUDA runtime, linked statically, so that a machine without a driver can still start
// weft.
#include "kernels/gpu_devices.h"

#include "kernels/cuda_check.h"

namespace weft::kernels {
namespace {

GpuInfo describe(int device) {
  const std::string where = " on GPU " + std::to_string(device);
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties" + where);
  char bus[32] = {};
  check(cudaDeviceGetPCIBusId(bus, sizeof bus, device), "cudaDeviceGetPCIBusId" + where);
  const CurrentDevice current(device);
  size_t free_bytes = 0, total_bytes = 0;
  check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo" + where);
  return {properties.name, properties.major, properties.minor, total_bytes, free_bytes, bus};
}

}  // namespace

GpuQuery query_gpus() {
  int n = 0;
  const cudaError_t status = cudaGetDeviceCount(&n);
  if (status == cudaErrorInsufficientDriver) {
    int driver = 0;
    const bool found = cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0;
    return {
        {},
        std::string(found ? "driver too old: " : "driver missing: ") + cudaGetErrorString(status)};
  }
  if (status == cudaErrorNoDevice || (status == cudaSuccess && n == 0))
    return {{}, "the driver shows no GPU to this process"};
  check(status, "cudaGetDeviceCount");
  GpuQuery query;
  for (int device = 0; device < n; ++device) query.gpus.push_back(describe(device));
  return query;
}

}  // namespace weft::kernels
