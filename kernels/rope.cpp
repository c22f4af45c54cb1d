// Rotary embedding on the CPU: each product and sum is rounded to float on its own.
#include "kernels/rope.h"

#include "kernels/cpu_kernels.h"

namespace weft::kernels {
namespace {

template <class T>
void rotate(T* head,            // [2 half]
            const float* pair,  // [half, 2]
            size_t half) {
  for (size_t i = 0; i < half; ++i) {
    const float cos = pair[2 * i], sin = pair[2 * i + 1];
    const float x = to_float(head[i]), y = to_float(head[i + half]);
    head[i] = from_float<T>(x * cos - y * sin);
    head[i + half] = from_float<T>(y * cos + x * sin);
  }
}

}  // namespace

void rope(const Rope& a, Stream& stream) {
  if (a.tokens == 0) return;
  const size_t half = a.head_dim / 2;
  const size_t grain = 1 + kElementwiseWork / (a.n_heads * a.head_dim);
  with_float_type(a.x.dtype, [&](auto type) {
    using T = decltype(type);
    stream.pool().split(a.tokens, grain, [&](size_t begin, size_t end) {
      for (size_t t = begin; t < end; ++t)
        for (size_t h = 0; h < a.n_heads; ++h)
          rotate(a.x.as<T>() + t * a.stride + h * a.head_dim,
                 a.table + static_cast<size_t>(a.positions[t]) * a.head_dim, half);
    });
  });
}

}  // namespace weft::kernels
