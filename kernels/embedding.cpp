// Embedding rows on the CPU.
#include "kernels/embedding.h"

#include <algorithm>

#include "kernels/cpu_kernels.h"

namespace weft::kernels {

void embedding(const Embedding& a, Stream& stream) {
  if (a.tokens == 0) return;
  const size_t grain = 1 + kElementwiseWork / a.hidden;
  with_float_type(a.table.dtype, [&](auto from_type) {
    with_float_type(a.y.dtype, [&](auto to_type) {
      using To = decltype(to_type);
      const auto* table = a.table.as<decltype(from_type)>();
      stream.pool().split(a.tokens, grain, [&](size_t begin, size_t end) {
        for (size_t t = begin; t < end; ++t) {
          To* y = a.y.as<To>() + t * a.hidden;
          // An id below the shard wraps to a huge row, so one comparison finds both sides.
          const size_t row = static_cast<size_t>(int64_t{a.ids[t]}) - a.shard_begin;
          if (row >= a.shard_rows) {
            std::fill_n(y, a.hidden, To{});
            continue;
          }
          for (size_t i = 0; i < a.hidden; ++i)
            y[i] = from_float<To>(to_float(table[row * a.hidden + i]) + 0.0f);
        }
      });
    });
  });
}

}  // namespace weft::kernels
