// Which kernel computes a product: the norm in front, then streaming, cuBLASLt or plain.
#include "kernels/gpu_product.h"

#include <cuda_runtime.h>

#include "kernels/cuda_check.h"
#include "kernels/gpu_cublas.h"
#include "kernels/gpu_product_stream.h"
#include "kernels/gpu_rms_norm.h"
#include "kernels/gpu_swiglu.h"
#include "runtime/base/error.h"

namespace weft::kernels {
namespace {

constexpr size_t kAlignment = 256;

size_t aligned(size_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

void expect_sound(const GpuProduct& a) {
  const bool power_of_two = a.n_chunks > 0 && (a.n_chunks & (a.n_chunks - 1)) == 0;
  WEFT_EXPECT(power_of_two && a.n_chunks <= kMaxGpuChunks && a.k % a.n_chunks == 0);
  WEFT_EXPECT(a.k > 0 && a.k < size_t{1} << 31 && a.n < size_t{1} << 31 && a.x_stride >= a.k);
  WEFT_EXPECT(a.epilogue != GpuProduct::kSwiglu || a.n % 2 == 0);
  WEFT_EXPECT(a.epilogue != GpuProduct::kAddResidual || a.residual);
  WEFT_EXPECT(a.epilogue != GpuProduct::kPartial || a.y.dtype == DType::f32);
  WEFT_EXPECT(!a.x_squares || (a.x_parts > 0 && a.x_parts <= kMaxNormParts && !a.norm_weight &&
                               !a.invariant && a.tokens <= kStreamTokens && can_stream(a)));
  WEFT_EXPECT(!a.defer.weight || (gpu_product_norm_parts(a) > 0 && a.defer.squares &&
                                  a.defer.weight.dtype == a.x.dtype));
  WEFT_EXPECT(a.y_stride >= (a.epilogue == GpuProduct::kSwiglu ? a.n / 2 : a.n));
}

size_t n_sms() {
  int device = 0, n = 0;
  check(cudaGetDevice(&device), "cudaGetDevice");
  check(cudaDeviceGetAttribute(&n, cudaDevAttrMultiProcessorCount, device),
        "cudaDeviceGetAttribute");
  return static_cast<size_t>(n);
}

// x normalised into the workspace by a kernel of its own.
void normalise_first(GpuProduct& a, CudaStream stream) {
  GpuRmsNorm norm;
  norm.x = a.x;
  norm.weight = a.norm_weight;
  norm.y = {a.workspace, a.x.dtype};
  norm.tokens = a.tokens;
  norm.width = norm.y_stride = a.k;
  norm.x_stride = a.x_stride;
  norm.eps = a.eps;
  norm.dependent_launch = a.dependent_launch;
  gpu_rms_norm(norm, stream);
  a.x = norm.y;
  a.x_stride = a.k;
  a.norm_weight = {};
}

// cuBLASLt rounds between a bias and a residual: those few are left to the streaming kernel.
bool suits_cublas(const GpuProduct& a) {
  const bool rounds_twice = a.epilogue == GpuProduct::kAddResidual && a.bias;
  return a.tokens > kStreamTokens && a.plan && !a.invariant && !rounds_twice;
}

void by_cublas(GpuProduct a, CudaStream stream) {
  if (a.epilogue != GpuProduct::kSwiglu) return gpu_product_cublas(a, stream);
  GpuSwiGlu behind;
  behind.out = a.y;
  behind.tokens = a.tokens;
  behind.ffn = a.n / 2;
  behind.out_stride = a.y_stride;
  a.y = {static_cast<std::byte*>(a.workspace) + aligned(a.tokens * a.k * dtype_bytes(a.x.dtype)),
         a.x.dtype};
  a.y_stride = a.n;
  a.epilogue = GpuProduct::kStore;
  behind.gate_up = a.y;
  gpu_product_cublas(a, stream);
  gpu_swiglu(behind, stream);
}

}  // namespace

size_t gpu_product_workspace_bytes(size_t max_tokens, size_t n, size_t k, DType dtype) {
  return aligned(max_tokens * k * dtype_bytes(dtype)) + max_tokens * n * dtype_bytes(dtype);
}

size_t gpu_product_norm_parts(const GpuProduct& a) {
  const bool suits = a.epilogue == GpuProduct::kAddResidual && !a.invariant && a.tokens > 0 &&
                     a.tokens <= kStreamTokens && a.x.dtype == DType::bf16 &&
                     a.y.dtype == DType::bf16 && can_stream(a);
  if (!suits) return 0;
  const size_t parts = stream_norm_parts(a, stream_cut(a, {}, n_sms()));
  return parts <= kMaxNormParts ? parts : 0;
}

void gpu_product_with(const GpuProduct& args, const StreamWish& wish, CudaStream stream) {
  expect_sound(args);
  if (args.tokens == 0 || args.n == 0) return;
  GpuProduct a = args;
  if (a.norm_weight) normalise_first(a, stream);
  if (!can_stream(a)) return gpu_product_plain(a, stream);
  if (suits_cublas(a)) return by_cublas(a, stream);
  gpu_product_stream(a, stream_cut(a, wish, n_sms()), stream);
}

void gpu_product(const GpuProduct& args, CudaStream stream) { gpu_product_with(args, {}, stream); }

}  // namespace weft::kernels
