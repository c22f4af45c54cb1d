#include "runtime/gpu_synthesis.h"

#include <cmath>

#include "kernels/gpu_synthetic.h"
#include "runtime/synthetic.h"

namespace weft::runtime {

void make_on_gpu(uint64_t seed, const TensorInfo& info, const TensorLoad& load,
                 const ColumnPart& part, DType dtype, kernels::Stream& stream) {
  const SyntheticShape shape = synthetic_shape(load.name, info.shape);
  kernels::GpuSynthetic args;
  args.key = synthetic_key(seed, load.name);
  args.center = shape.center;
  args.scale = shape.scale;
  args.model = info.dtype;
  args.columns = info.shape.size() > 1 ? info.shape[1] : 1;
  args.first_row = load.rows.begin;
  args.first_column = part.columns.begin;
  args.rows = load.rows.size();
  args.width = part.columns.size();
  args.to = {load.to, dtype};
  args.to_stride = load.row_step * part.width;
  kernels::gpu_synthetic(args, stream.gpu());
}

void make_noise_on_gpu(uint64_t seed, void* to, size_t n, DType dtype, kernels::Stream& stream) {
  constexpr size_t kColumns = 4096;
  kernels::GpuSynthetic args;
  args.key = synthetic_key(seed, "noise");
  args.scale = static_cast<float>(std::sqrt(3.0) / 32768);  // of a uniform value in ±32768
  args.model = dtype;
  args.columns = args.width = args.to_stride = kColumns;
  args.rows = n / kColumns;
  args.to = {to, dtype};
  kernels::gpu_synthetic(args, stream.gpu());
  const size_t made = args.rows * kColumns;
  args.first_row = args.rows;
  args.rows = 1;
  args.width = n - made;
  args.to.data = static_cast<std::byte*>(to) + made * dtype_bytes(dtype);
  if (args.width > 0) kernels::gpu_synthetic(args, stream.gpu());
}

}  // namespace weft::runtime
