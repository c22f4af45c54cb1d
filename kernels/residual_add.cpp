// Residual additions on the CPU.
#include "kernels/residual_add.h"

#include "kernels/cpu_kernels.h"

namespace weft::kernels {

void residual_add(const ResidualAdd& a, Stream& stream) {
  if (a.tokens == 0 || a.hidden == 0) return;
  const size_t grain = 1 + kElementwiseWork / a.hidden;
  with_float_type(a.residual.dtype, [&](auto type) {
    using T = decltype(type);
    stream.pool().split(a.tokens, grain, [&](size_t begin, size_t end) {
      for (size_t t = begin; t < end; ++t) {
        T* residual = a.residual.as<T>() + t * a.hidden;
        const float* partial = a.partial + t * a.hidden;
        if (!a.bias) {
          for (size_t i = 0; i < a.hidden; ++i)
            residual[i] = from_float<T>(to_float(residual[i]) + partial[i]);
          continue;
        }
        with_float_type(a.bias.dtype, [&](auto bias_type) {
          const auto* bias = a.bias.as<decltype(bias_type)>();
          for (size_t i = 0; i < a.hidden; ++i)
            residual[i] = from_float<T>(to_float(residual[i]) + (partial[i] + to_float(bias[i])));
        });
      }
    });
  });
}

}  // namespace weft::kernels
