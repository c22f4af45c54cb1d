// The answer of a build without a CUDA toolkit, where no GPU's memory exists to be named.
#include "kernels/gpu_attention.h"
#include "kernels/gpu_sampling.h"
#include "runtime/base/error.h"

namespace weft::kernels {
namespace {

[[noreturn]] void refuse() { throw input_error("weft was built without CUDA"); }

}  // namespace

void gpu_qkv_post(const GpuQkvPost&, CudaStream) { refuse(); }
size_t gpu_attention_workspace_bytes(size_t, size_t, size_t, size_t) { refuse(); }
void gpu_attention(const GpuAttention&, CudaStream) { refuse(); }
size_t gpu_sample_workspace_bytes(size_t, size_t) { refuse(); }
void gpu_sample(const GpuSample&, CudaStream) { refuse(); }

}  // namespace weft::kernels
