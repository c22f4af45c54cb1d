// Products of many tokens by cuBLASLt: the algorithm for each shape is chosen by measurement, once,
// and can be told to other ranks.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "kernels/gpu_product.h"

namespace weft::kernels {

inline constexpr size_t kCublasWorkspaceBytes = size_t{32} << 20;

// Owns the library's handle, and the choices; made once a rank, before the first capture.
class CublasProducts {
 public:
  // `workspace` is kCublasWorkspaceBytes of device memory, which one product at a time uses. Throws
  // Error where the library isn't there: products then do without a plan.
  explicit CublasProducts(void* workspace);
  ~CublasProducts();
  CublasProducts(CublasProducts&&) noexcept;
  CublasProducts& operator=(CublasProducts&&) noexcept;

  // Times the library's candidates for this product (inputs, bias and workspace as given; y is
  // written, and only rewritten: residual is added to itself where it is y) and keeps the best for
  // products of this shape and types with as many tokens, and with fewer down to the next measured
  // count. Synchronises; not to be captured.
  void measure(const GpuProduct& args, CudaStream stream);

  // For GpuProduct::plan; null where nothing of this shape was measured. Valid until the next
  // measure() or adopt().
  const GpuProductPlan* plan(const GpuProduct& args) const;

  // All choices as bytes, for ranks with the same library and kind of GPU. adopt() throws Error
  // where they are from another version.
  std::string serialise() const;
  void adopt(std::string_view choices);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// args.plan's product, bias and residual included, without norm and SwiGLU. Inside of gpu_product.
void gpu_product_cublas(const GpuProduct& args, CudaStream stream);

}  // namespace weft::kernels
