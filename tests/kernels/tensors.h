// Tensors for tests: seeded values of any dtype, poison around and inside what must be written.
#pragma once

#include <algorithm>
#include <bit>
#include <cstring>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "kernels/tensor.h"

namespace weft::test {

inline constexpr DType kFloatTypes[] = {DType::f32, DType::f16, DType::bf16};

// Bytes that stand for elements of a dtype.
class Tensor {
 public:
  // Filled with NaN.
  Tensor(DType dtype, size_t n) : dtype_(dtype), n_(n), bytes_(n * dtype_bytes(dtype)) {
    const std::vector<float> poison(n, std::numeric_limits<float>::quiet_NaN());
    convert(poison.data(), DType::f32, bytes_.data(), dtype, n);
  }
  // Normal with the given deviation, rounded to the dtype.
  static Tensor random(DType dtype, size_t n, uint32_t seed, float deviation = 1) {
    std::mt19937 engine(seed);
    std::normal_distribution<float> normal(0, deviation);
    std::vector<float> values(n);
    for (float& value : values) value = normal(engine);
    Tensor tensor(dtype, n);
    convert(values.data(), DType::f32, tensor.bytes_.data(), dtype, n);
    return tensor;
  }

  DType dtype() const { return dtype_; }
  size_t size() const { return n_; }
  const std::vector<std::byte>& bytes() const { return bytes_; }
  kernels::In in(size_t from = 0) const {
    return {bytes_.data() + from * dtype_bytes(dtype_), dtype_};
  }
  kernels::Out out(size_t from = 0) { return {bytes_.data() + from * dtype_bytes(dtype_), dtype_}; }
  std::vector<float> values() const {
    std::vector<float> values(n_);
    convert(bytes_.data(), dtype_, values.data(), DType::f32, n_);
    return values;
  }
  // `rows` rows of `width` that lie `stride` apart.
  std::vector<float> rows(size_t rows, size_t width, size_t stride) const {
    const std::vector<float> all = values();
    std::vector<float> picked;
    for (size_t r = 0; r < rows; ++r)
      picked.insert(picked.end(), all.begin() + static_cast<std::ptrdiff_t>(r * stride),
                    all.begin() + static_cast<std::ptrdiff_t>(r * stride + width));
    return picked;
  }
  // True where all that lies between the rows is still poison.
  bool gaps_untouched(size_t rows, size_t width, size_t stride) const {
    const std::vector<float> all = values();
    for (size_t i = 0; i < n_; ++i) {
      const bool inside = i / stride < rows && i % stride < width;
      if (!inside && all[i] == all[i]) return false;
    }
    return true;
  }

 private:
  DType dtype_;
  size_t n_;
  std::vector<std::byte> bytes_;
};

inline std::string name(DType dtype) { return std::string(dtype_name(dtype)); }

}  // namespace weft::test
