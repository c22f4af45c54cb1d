// Asks the CUDA runtime, linked statically, so that a machine without a driver can still start
// weft.
#include "kernels/gpu_devices.h"

#include <unistd.h>

#include "kernels/cuda_check.h"
#include "kernels/gpu_needs.h"

namespace weft::kernels {
namespace {

GpuInfo describe(int device, bool asks_for_free) {
  const std::string where = " on GPU " + std::to_string(device);
  cudaDeviceProp properties{};
  check(cudaGetDeviceProperties(&properties, device), "cudaGetDeviceProperties" + where);
  char bus[32] = {};
  check(cudaDeviceGetPCIBusId(bus, sizeof bus, device), "cudaDeviceGetPCIBusId" + where);
  size_t free_bytes = 0, total_bytes = properties.totalGlobalMem;
  if (asks_for_free) {
    const CurrentDevice current(device);
    check(cudaMemGetInfo(&free_bytes, &total_bytes), "cudaMemGetInfo" + where);
  }
  return {properties.name, properties.major, properties.minor, total_bytes, free_bytes, bus};
}

GpuQuery look(bool asks_for_free) {
  int n = 0;
  const cudaError_t status = cudaGetDeviceCount(&n);
  if (status == cudaErrorInsufficientDriver) {
    int driver = 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess) driver = 0;
    return {{}, driver_problem(driver, CUDART_VERSION)};
  }
  if (status == cudaErrorNoDevice || (status == cudaSuccess && n == 0))
    return {{}, "the driver shows no GPU to this process"};
  check(status, "cudaGetDeviceCount");
  GpuQuery query;
  for (int device = 0; device < n; ++device) query.gpus.push_back(describe(device, asks_for_free));
  return query;
}

}  // namespace

GpuQuery query_gpus() { return look(true); }
GpuQuery list_gpus() { return look(false); }

std::vector<std::string> built_capabilities() {
  std::vector<std::string> all;  // of "90a,100"
  std::string one;
  for (const char c : std::string(WEFT_CUDA_ARCHITECTURES) + ",") {
    if (c != ',') {
      one += c;
      continue;
    }
    const size_t digits = one.find_last_of("0123456789") + 1;
    if (digits >= 2) all.push_back(one.substr(0, digits - 1) + "." + one.substr(digits - 1));
    one.clear();
  }
  return all;
}

bool gpu_driver_loaded() { return access("/dev/nvidiactl", F_OK) == 0; }

}  // namespace weft::kernels
