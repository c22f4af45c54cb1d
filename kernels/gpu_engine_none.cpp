// What the engine asks of a GPU beside products and attention, in a build without a CUDA toolkit.
#include "kernels/gpu_ceilings.h"
#include "kernels/gpu_rows.h"
#include "kernels/gpu_synthetic.h"
#include "runtime/base/error.h"

namespace weft::kernels {
namespace {

[[noreturn]] void refuse() { throw run_error("weft was built without CUDA"); }

}  // namespace

double gpu_read_rate(const void*, size_t, CudaStream) { refuse(); }
void gpu_gather_rows(const GpuGatherRows&, CudaStream) { refuse(); }
void gpu_write_table(int32_t*, const GpuTableEntry*, size_t, CudaStream) { refuse(); }
void gpu_synthetic(const GpuSynthetic&, CudaStream) { refuse(); }

}  // namespace weft::kernels
