// The products of one rank on its GPU: one workspace, and which of cuBLASLt's algorithms is
// quickest for each shape.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/gpu_cublas.h"
#include "kernels/gpu_product.h"
#include "runtime/decoder.h"
#include "runtime/gpu_arena.h"

namespace weft::runtime {

class GpuProducts {
 public:
  // For products of a stage's layers over max_rows tokens, and of a head over max_sampled.
  GpuProducts(const DecoderShape& shape, size_t max_rows, size_t max_sampled, GpuArena& arena);

  // Fills in what all products share, and runs. A norm is deferred where it may be: returns the
  // parts of its squares, or 0.
  size_t run(kernels::GpuProduct product, kernels::CudaStream stream);

  // Of measurements on another rank, as choices() gave them.
  void adopt(std::string_view choices);
  // Times the algorithms for the shape of `product` up to max_tokens, where more than weft's own
  // kernels stream in one go, unless they are known already. x, y and residual have room for
  // max_tokens rows; y is written. Synchronises.
  void measure(kernels::GpuProduct product, size_t max_tokens, kernels::CudaStream stream);
  std::string choices() const { return cublas_ ? cublas_->serialise() : std::string(); }

 private:
  bool uses_cublas_;
  bool invariant_;
  void* workspace_;
  void* cublas_workspace_ = nullptr;
  std::optional<kernels::CublasProducts> cublas_;
};

}  // namespace weft::runtime
