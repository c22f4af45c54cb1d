// One workspace for all, since products of a stream follow each other. Algorithms are measured at
// powers of two of tokens; fewer tokens than those take the same.
#include "runtime/gpu_products.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "runtime/base/error.h"

namespace weft::runtime {
namespace {

using kernels::GpuProduct;

size_t workspace_bytes(const DecoderShape& s, size_t max_rows, size_t max_sampled) {
  const size_t d = s.spec.head_dim, h = s.shard.heads.size(), kv = s.shard.kv_heads.size();
  const size_t hidden = s.spec.hidden, f = s.shard.ffn.size();
  size_t most = 0;
  const auto add = [&](size_t tokens, size_t n, size_t k) {
    const DType dtype = s.formats.activations;
    most = std::max(most, kernels::gpu_product_workspace_bytes(tokens, n, k, dtype));
  };
  add(max_rows, (h + 2 * kv) * d, hidden);
  add(max_rows, hidden, h * d);
  add(max_rows, 2 * f, hidden);
  add(max_rows, hidden, f);
  if (s.layers.end == s.spec.n_layers) add(max_sampled, s.shard.vocab.size(), hidden);
  return most;
}

// cuBLASLt's sums have another order for every shape, so invariant numerics do without.
bool takes_cublas(const DecoderShape& s, size_t max_rows) {
  return !s.invariant && s.formats.activations != DType::f32 && max_rows > kernels::kStreamTokens;
}

}  // namespace

GpuProducts::GpuProducts(const DecoderShape& shape, size_t max_rows, size_t max_sampled,
                         GpuArena& arena)
    : uses_cublas_(takes_cublas(shape, max_rows)),
      invariant_(shape.invariant),
      workspace_(arena.take(workspace_bytes(shape, max_rows, max_sampled))) {
  if (uses_cublas_) cublas_workspace_ = arena.take(kernels::kCublasWorkspaceBytes);
  if (cublas_workspace_ == nullptr) return;
  try {
    cublas_.emplace(cublas_workspace_);
  } catch (const Error& error) {
    spdlog::warn("products of many tokens run by weft's own kernels, which takes longer: {}",
                 error.what());
  }
}

size_t GpuProducts::run(GpuProduct product, kernels::CudaStream stream) {
  product.invariant = invariant_;
  product.dependent_launch = true;
  product.workspace = workspace_;
  if (cublas_ && product.tokens > kernels::kStreamTokens) {
    const bool gated = product.epilogue == GpuProduct::kSwiglu;
    GpuProduct written = product;  // as cuBLASLt sees it
    if (gated) written.epilogue = GpuProduct::kStore;
    product.plan = cublas_->plan(written);
  }
  const size_t parts = product.defer.weight ? kernels::gpu_product_norm_parts(product) : 0;
  if (parts == 0) product.defer = {};
  kernels::gpu_product(product, stream);
  return parts;
}

void GpuProducts::adopt(std::string_view choices) {
  if (cublas_ && !choices.empty()) cublas_->adopt(choices);
}

void GpuProducts::measure(GpuProduct product, size_t max_tokens, kernels::CudaStream stream) {
  if (!cublas_ || max_tokens <= kernels::kStreamTokens) return;
  product.tokens = max_tokens;
  if (product.epilogue == GpuProduct::kSwiglu) {
    product.epilogue = GpuProduct::kStore;
    product.y = {workspace_, product.x.dtype};
    product.y_stride = product.n;
  }
  if (cublas_->plan(product) != nullptr) return;
  product.norm_weight = {};
  for (size_t tokens = 2 * kernels::kStreamTokens; tokens < max_tokens; tokens *= 2) {
    product.tokens = tokens;
    cublas_->measure(product, stream);
  }
  product.tokens = max_tokens;
  cublas_->measure(product, stream);
}

}  // namespace weft::runtime
