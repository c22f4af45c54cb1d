// Synthetic weights: a formula from (seed, tensor name, element index) to a value, so that any part
// of any tensor can be made anywhere. Every step is integer arithmetic or one correctly rounded
// float operation, without fusing, so a CUDA twin gives the same bits.
//
//   mix(x):   x ^= x >> 30; x *= 0xbf58476d1ce4e5b9; x ^= x >> 27; x *= 0x94d049bb133111eb;
//             x ^= x >> 31           (64-bit; the finaliser of splitmix64, Steele et al., 2014)
//   key     = mix(fnv1a_64(name) + mix(seed + 0x9e3779b97f4a7c15))
//   word    = mix(key + (element / 4 + 1) * 0x9e3779b97f4a7c15)
//   k       = bits 16 (element % 4) … + 15 of word, as a signed 16-bit integer
//   uniform = float(k) + 0.5f        in (-32768, 32768), exact, mean 0
//   value   = center + scale * uniform, rounded to the model's dtype
//
// `element` counts in the checkpoint's layout, rows first.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <string>

#include "runtime/tensor_source.h"

namespace weft::runtime {

uint64_t synthetic_key(uint64_t seed, std::string_view tensor);

// How a tensor's values lie: matrices have mean 0 and variance 1 / columns; norm weights are
// uniform in 1 ± 0.25, biases in ± 0.125.
struct SyntheticShape {
  float center = 0;
  float scale = 0;  // of `uniform`
};
SyntheticShape synthetic_shape(std::string_view tensor, const std::vector<size_t>& shape);

// Elements [begin, begin + n) of a tensor, in `dtype` (f32, f16, bf16).
void make_elements(uint64_t key, SyntheticShape shape, size_t begin, size_t n, void* to,
                   DType dtype);

class Synthetic final : public TensorSource {
 public:
  Synthetic(const planner::ModelSpec& spec, uint64_t seed);

  const TensorInfo* find(const std::string& name) const override;
  Place place(const std::string&) const override { return {}; }  // any order does
  void read_rows(const std::string& name, size_t begin, size_t end, void* to,
                 kernels::ThreadPool& pool) override;
  std::string fingerprint() const override;
  std::optional<uint64_t> synthetic_seed() const override { return seed_; }
  size_t bytes_read() const override { return bytes_made_; }

 private:
  uint64_t seed_;
  std::map<std::string, TensorInfo> tensors_;
  std::atomic<size_t> bytes_made_ = 0;
};

}  // namespace weft::runtime
