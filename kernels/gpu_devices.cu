// Asks the CUDA runtime, linked statically, so that a machine without a driver can still start
// weft.
#include "kernels/gpu_devices.h"

#include <unistd.h>

#include "kernels/cuda_check.h"

namespace weft::kernels {
namespace {

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

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
    const bool found = cudaDriverGetVersion(&driver) == cudaSuccess && driver > 0;
    const std::string there = found ? "the GPU driver is too old: it runs CUDA " +
                                          version_text(driver) + " at most, and weft needs "
                                    : "the GPU driver is missing: weft needs one for CUDA ";
    return {{}, there + version_text(CUDART_VERSION)};
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

bool runs_here(const GpuInfo& gpu) {
  const std::string major = std::to_string(gpu.compute_major) + ".";
  for (const std::string& built : built_capabilities()) {
    const std::string exact = major + std::to_string(gpu.compute_minor);
    const bool is_specific = built.back() < '0' || built.back() > '9';
    if (is_specific && built.substr(0, built.size() - 1) == exact) return true;
    // Code for 8.0 runs on 8.6, not the other way round.
    if (!is_specific && built.starts_with(major) &&
        std::stoi(built.substr(major.size())) <= gpu.compute_minor)
      return true;
  }
  return false;
}

bool gpu_driver_loaded() { return access("/dev/nvidiactl", F_OK) == 0; }

}  // namespace weft::kernels
