// Synthetic weights on the CPU: four elements a mixed word, in blocks that stay in cache.
#include "runtime/synthetic.h"

#include <algorithm>
#include <cmath>

#include "runtime/base/error.h"
#include "runtime/base/sha256.h"
#include "runtime/tensor_list.h"

namespace weft::runtime {
namespace {

constexpr uint64_t kGolden = 0x9e3779b97f4a7c15;  // 2^64 / golden ratio, odd
constexpr size_t kBlock = 1024;                   // elements, a multiple of 4
constexpr size_t kGrain = size_t{1} << 18;        // elements a thread takes at once

uint64_t mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

uint64_t fnv1a_64(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325;
  for (unsigned char byte : text) hash = (hash ^ byte) * 0x100000001b3;
  return hash;
}

// uniform values of the whole groups that cover [begin, begin + n), n <= kBlock.
void make_uniform(uint64_t key, size_t group, size_t n_groups, int16_t* k) {
  for (size_t i = 0; i < n_groups; ++i) {
    const uint64_t word = mix(key + (group + i + 1) * kGolden);
    for (size_t lane = 0; lane < 4; ++lane)
      k[4 * i + lane] = static_cast<int16_t>(word >> (16 * lane));
  }
}

// Finite and small by construction: no case for NaN, so that it runs over vectors.
uint16_t round_finite_bf16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  return static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16);
}

template <class T>
void finish(const int16_t* k, SyntheticShape shape, size_t n, T* to) {
  for (size_t i = 0; i < n; ++i) {
    const float uniform = static_cast<float>(k[i]) + 0.5f;
    const float value = shape.center + shape.scale * uniform;
    if constexpr (std::is_same_v<T, bf16>)
      to[i].bits = round_finite_bf16(value);
    else
      to[i] = from_float<T>(value);
  }
}

}  // namespace

uint64_t synthetic_key(uint64_t seed, std::string_view tensor) {
  return mix(fnv1a_64(tensor) + mix(seed + kGolden));
}

SyntheticShape synthetic_shape(std::string_view tensor, const std::vector<size_t>& shape) {
  if (shape.size() == 2) {  // uniform's variance is 32768^2 / 3
    const double deviation = 1.0 / std::sqrt(static_cast<double>(shape[1]));
    return {0.0f, static_cast<float>(deviation * std::sqrt(3.0) / 32768.0)};
  }
  if (tensor.ends_with(".bias")) return {0.0f, 0.125f / 32768.0f};
  return {1.0f, 0.25f / 32768.0f};
}

void make_elements(uint64_t key, SyntheticShape shape, size_t begin, size_t n, void* to,
                   DType dtype) {
  int16_t k[kBlock];
  with_float_type(dtype, [&](auto type) {
    auto* out = static_cast<decltype(type)*>(to);
    while (n > 0) {
      const size_t skip = begin % 4;
      const size_t taken = std::min(n, kBlock - skip);
      make_uniform(key, begin / 4, (skip + taken + 3) / 4, k);
      finish(k + skip, shape, taken, out);
      out += taken;
      begin += taken;
      n -= taken;
    }
  });
}

Synthetic::Synthetic(const planner::ModelSpec& spec, uint64_t seed) : seed_(seed) {
  for (NamedShape& tensor : tensor_list(spec))
    tensors_[tensor.name] = {spec.dtype, std::move(tensor.shape)};
}

std::string Synthetic::fingerprint() const { return sha256_hex(fmt::format("seed {}", seed_)); }

const TensorInfo* Synthetic::find(const std::string& name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

void Synthetic::read_rows(const std::string& name, size_t begin, size_t end, void* to,
                          kernels::ThreadPool& pool) {
  const TensorInfo* info = find(name);
  if (info == nullptr) throw input_error("the model has no tensor {}", name);
  if (begin > end || end > info->shape.at(0))
    throw input_error("tensor {}: rows {}..{} of {}", name, begin, end, info->shape[0]);
  const size_t columns = n_elements(info->shape) / info->shape[0];
  const size_t element_bytes = dtype_bytes(info->dtype);
  const uint64_t key = synthetic_key(seed_, name);
  const SyntheticShape shape = synthetic_shape(name, info->shape);
  auto* out = static_cast<std::byte*>(to);
  pool.split((end - begin) * columns, kGrain, [&](size_t from, size_t until) {
    make_elements(key, shape, begin * columns + from, until - from, out + from * element_bytes,
                  info->dtype);
    bytes_made_ += (until - from) * element_bytes;
  });
}

std::unique_ptr<TensorSource> make_synthetic(const planner::ModelSpec& spec, uint64_t seed) {
  return std::make_unique<Synthetic>(spec, seed);
}

}  // namespace weft::runtime
