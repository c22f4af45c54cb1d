// RMSNorm on the CPU. Squares and sums are rounded on their own, so plain loops over 16 lanes give
// the same bits however a compiler turns them into vectors.
#include "kernels/rms_norm.h"

#include <cmath>

#include "kernels/cpu_kernels.h"

namespace weft::kernels {
namespace {

template <class Acc, class T>
Acc sum_of_squares(const T* x, size_t width) {
  Acc lane[kLanes] = {};
  size_t i = 0;
  for (; i + kLanes <= width; i += kLanes)
    for (size_t j = 0; j < kLanes; ++j) {
      const Acc v = to_float(x[i + j]);
      lane[j] += v * v;
    }
  for (size_t j = 0; i + j < width; ++j) {
    const Acc v = to_float(x[i + j]);
    lane[j] += v * v;
  }
  for (size_t step = kLanes / 2; step > 0; step /= 2)
    for (size_t j = 0; j < step; ++j) lane[j] += lane[j + step];
  return lane[0];
}

template <class Acc, class T, class W, class Y>
void norm_group(const T* x, const W* weight, Y* y, size_t width, float eps) {
  const Acc mean = sum_of_squares<Acc>(x, width) / static_cast<Acc>(width);
  const Acc inverse = Acc{1} / std::sqrt(mean + static_cast<Acc>(eps));
  for (size_t i = 0; i < width; ++i) {
    const T scaled = from_float<T>(static_cast<float>(to_float(x[i]) * inverse));
    y[i] =
        from_float<Y>(static_cast<float>(static_cast<Acc>(to_float(scaled)) * to_float(weight[i])));
  }
}

}  // namespace

template <class Acc>
void rms_norm(const RmsNorm& a, Stream& stream) {
  if (a.tokens == 0) return;
  const size_t grain = 1 + kElementwiseWork / (a.groups * a.width);
  with_float_type(a.x.dtype, [&](auto x_type) {
    with_float_type(a.weight.dtype, [&](auto weight_type) {
      with_float_type(a.y.dtype, [&](auto y_type) {
        const auto* x = a.x.as<decltype(x_type)>();
        const auto* weight = a.weight.as<decltype(weight_type)>();
        auto* y = a.y.as<decltype(y_type)>();
        stream.pool().split(a.tokens, grain, [&](size_t begin, size_t end) {
          for (size_t t = begin; t < end; ++t)
            for (size_t g = 0; g < a.groups; ++g)
              norm_group<Acc>(x + t * a.x_stride + g * a.width, weight,
                              y + t * a.y_stride + g * a.width, a.width, a.eps);
        });
      });
    });
  });
}

template void rms_norm<float>(const RmsNorm& args, Stream& stream);
template void rms_norm<double>(const RmsNorm& args, Stream& stream);

}  // namespace weft::kernels
