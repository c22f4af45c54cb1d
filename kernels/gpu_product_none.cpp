// The GPU's products and elementwise operations in a build without a CUDA toolkit.
#include "kernels/gpu_cublas.h"
#include "kernels/gpu_embedding.h"
#include "kernels/gpu_product.h"
#include "kernels/gpu_residual_add.h"
#include "kernels/gpu_rms_norm.h"
#include "kernels/gpu_swiglu.h"
#include "runtime/base/error.h"

namespace weft::kernels {
namespace {

[[noreturn]] void refuse() { throw run_error("weft was built without CUDA"); }

}  // namespace

size_t gpu_product_workspace_bytes(size_t, size_t, size_t, DType) { refuse(); }
void gpu_product(const GpuProduct&, CudaStream) { refuse(); }
void gpu_rms_norm(const GpuRmsNorm&, CudaStream) { refuse(); }
void gpu_residual_add(const GpuResidualAdd&, CudaStream) { refuse(); }
void gpu_swiglu(const GpuSwiGlu&, CudaStream) { refuse(); }
void gpu_embedding(const GpuEmbedding&, CudaStream) { refuse(); }

struct CublasProducts::State {};
CublasProducts::CublasProducts(void*) { refuse(); }
CublasProducts::~CublasProducts() = default;
CublasProducts::CublasProducts(CublasProducts&&) noexcept = default;
CublasProducts& CublasProducts::operator=(CublasProducts&&) noexcept = default;
void CublasProducts::measure(const GpuProduct&, CudaStream) { refuse(); }
const GpuProductPlan* CublasProducts::plan(const GpuProduct&) const { refuse(); }
std::string CublasProducts::serialise() const { refuse(); }
void CublasProducts::adopt(std::string_view) { refuse(); }

}  // namespace weft::kernels
