// The answer of a build without a CUDA toolkit.
#include "kernels/gpu_devices.h"

namespace weft::kernels {

GpuQuery query_gpus() { return {{}, "weft was built without CUDA"}; }
GpuQuery list_gpus() { return query_gpus(); }
std::vector<std::string> built_capabilities() { return {}; }
bool gpu_driver_loaded() { return false; }

}  // namespace weft::kernels
