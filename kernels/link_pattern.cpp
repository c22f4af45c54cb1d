#include "kernels/link_pattern.h"

#include <cstring>

namespace weft::kernels {
namespace {

template <class T>
T element(const LinkPattern& a, size_t i) {
  uint32_t sum = 0;
  for (int rank = a.first_rank; rank < a.end_rank; ++rank)
    sum += pattern_value(a.first + i, rank, a.mask);
  return from_float<T>(static_cast<float>(sum));
}

}  // namespace

void fill_pattern(const LinkPattern& a) {
  with_float_type(a.data.dtype, [&]<class T>(T) {
    T* to = static_cast<T*>(a.data.data);
    for (size_t i = 0; i < a.n; ++i) to[i] = element<T>(a, i);
  });
}

size_t count_wrong(const LinkPattern& a) {
  size_t n_wrong = 0;
  with_float_type(a.data.dtype, [&]<class T>(T) {
    const T* got = static_cast<const T*>(a.data.data);
    for (size_t i = 0; i < a.n; ++i) {
      const T want = element<T>(a, i);
      n_wrong += std::memcmp(&want, got + i, sizeof want) != 0;
    }
  });
  return n_wrong;
}

}  // namespace weft::kernels
