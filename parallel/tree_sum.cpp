// The tree is walked block by block, with the partial sums of a block in the nearest cache.
#include "parallel/tree_sum.h"

#include <algorithm>
#include <array>
#include <bit>

namespace weft::parallel {
namespace {

constexpr size_t kBlock = 512;  // elements
using Block = std::array<float, kBlock>;

template <class T>
void add_subtree(std::span<const void* const> parts, size_t begin, size_t n, Block& sum) {
  if (parts.size() == 1) {
    const T* from = static_cast<const T*>(parts[0]) + begin;
    for (size_t i = 0; i < n; ++i) sum[i] = to_float(from[i]);
    return;
  }
  const size_t left = std::bit_floor(parts.size() - 1);
  Block right;
  add_subtree<T>(parts.first(left), begin, n, sum);
  add_subtree<T>(parts.subspan(left), begin, n, right);
  for (size_t i = 0; i < n; ++i) sum[i] += right[i];
}

template <class T>
void tree_sum_of(std::span<const void* const> parts, T* out, size_t n) {
  Block sum;
  for (size_t begin = 0; begin < n; begin += kBlock) {
    const size_t length = std::min(kBlock, n - begin);
    add_subtree<T>(parts, begin, length, sum);
    for (size_t i = 0; i < length; ++i) out[begin + i] = from_float<T>(sum[i]);
  }
}

}  // namespace

void tree_sum(std::span<const void* const> parts, void* out, size_t n, DType dtype) {
  with_float_type(dtype,
                  [&](auto zero) { tree_sum_of(parts, static_cast<decltype(zero)*>(out), n); });
}

}  // namespace weft::parallel
