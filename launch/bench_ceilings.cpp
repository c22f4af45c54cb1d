// Random numbers throughout: on zeros the matrix units run faster than on any real data.
#include "launch/bench_ceilings.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cmath>

#include "kernels/gpu_ceilings.h"
#include "kernels/gpu_cublas.h"
#include "kernels/gpu_device.h"
#include "kernels/gpu_synthetic.h"
#include "runtime/base/error.h"

namespace weft::launch {
namespace {

using kernels::GpuBuffer;
using kernels::GpuEvent;
using kernels::GpuStream;

constexpr size_t kReadBytes = size_t{8} << 30;
constexpr size_t kSide = 8192;  // of the product's matrices
constexpr int kProducts = 10;

void fill(const GpuBuffer& buffer, uint64_t key, const GpuStream& stream) {
  constexpr size_t kColumns = 4096;
  kernels::GpuSynthetic args;
  args.key = key;
  args.scale = static_cast<float>(std::sqrt(3.0) / 32768);
  args.columns = args.width = args.to_stride = kColumns;
  args.rows = buffer.bytes() / sizeof(bf16) / kColumns;
  args.to = {buffer.data(), DType::bf16};
  kernels::gpu_synthetic(args, stream);
}

double read_rate(const GpuStream& stream) {
  const size_t free_bytes = kernels::gpu_memory().free_bytes;
  const GpuBuffer buffer(std::min(kReadBytes, free_bytes / 2));
  fill(buffer, 1, stream);
  return kernels::gpu_read_rate(buffer.data(), buffer.bytes(), stream);
}

double product_rate(const GpuStream& stream) {
  constexpr size_t kMatrixBytes = kSide * kSide * sizeof(bf16);
  const GpuBuffer x(kMatrixBytes), w(kMatrixBytes), y(kMatrixBytes);
  const GpuBuffer workspace(kernels::kCublasWorkspaceBytes);
  fill(x, 2, stream);
  fill(w, 3, stream);
  kernels::GpuProduct product;
  product.x = {x.data(), DType::bf16};
  product.w = {w.data(), DType::bf16};
  product.y = {y.data(), DType::bf16};
  product.tokens = product.n = product.k = product.x_stride = product.y_stride = kSide;
  kernels::CublasProducts cublas(workspace.data());
  cublas.measure(product, stream);
  product.plan = cublas.plan(product);
  GpuEvent start(true), end(true);
  start.record(stream);
  for (int i = 0; i < kProducts; ++i) kernels::gpu_product(product, stream);
  end.record(stream);
  end.synchronise();
  const double side = kSide;
  return 2 * side * side * side * kProducts / (end.ms_since(start) * 1e-3);
}

}  // namespace

double measure_read_rate() { return read_rate(GpuStream()); }

Ceilings measure_ceilings() {
  const GpuStream stream;
  Ceilings ceilings;
  ceilings.read_bytes_per_s = read_rate(stream);
  try {
    ceilings.flops_per_s = product_rate(stream);
  } catch (const Error& error) {
    spdlog::warn("the rate of products is not measured: {}", error.what());
  }
  return ceilings;
}

}  // namespace weft::launch
