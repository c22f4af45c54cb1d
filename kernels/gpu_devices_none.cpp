// The answer of a build without a CUDA toolkit.
#include "kernels/gpu_devices.h"

namespace weft::kernels {

GpuQuery query_gpus() { return {{}, "weft was built without CUDA"}; }

}  // namespace weft::kernels
