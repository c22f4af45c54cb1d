// Measuring links in a build without a CUDA toolkit: there is no GPU to measure.
#include "kernels/gpu_links.h"
#include "runtime/base/error.h"

namespace weft::kernels {
namespace {

[[noreturn]] void refuse() { throw run_error("weft was built without CUDA"); }

}  // namespace

void gpu_fill_pattern(const LinkPattern&, CudaStream) { refuse(); }
void gpu_count_wrong(const LinkPattern&, uint64_t*, CudaStream) { refuse(); }
void gpu_copy_by_kernel(void*, const void*, size_t, CudaStream) { refuse(); }

}  // namespace weft::kernels
