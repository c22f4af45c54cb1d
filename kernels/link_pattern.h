// Numbers for measuring messages: small whole ones, so that their sums over ranks are exact in
// their type whatever the order of the additions, and what arrives can be compared bit for bit.
// (The idea of nccl-tests' verifiable inputs.)
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/tensor.h"

namespace weft::kernels {

// Element i is the sum over ranks [first_rank, end_rank) of pattern_value(first + i, rank): one
// rank's own numbers, or what a sum of several must come to.
struct LinkPattern {
  Out data;  // [n] f32, bf16 or f16
  size_t n = 0;
  size_t first = 0;
  int first_rank = 0;
  int end_rank = 1;
  uint32_t mask = 1;  // pattern_mask of all ranks
};

// The largest 2^k - 1 that may be added n_ranks times within the type's whole numbers (2^24 in
// float32, 2^11 in float16, 2^8 in bfloat16), at most 16 bits; 0 where not even 1 can.
constexpr uint32_t pattern_mask(DType dtype, size_t n_ranks) {
  const size_t most = size_t{1} << (dtype == DType::f32 ? 24 : dtype == DType::f16 ? 11 : 8);
  uint32_t mask = 0;
  while (mask < 0xffff && (size_t{mask} * 2 + 1) * n_ranks <= most) mask = mask * 2 + 1;
  return mask;
}

// The GPU's twin is in gpu_links.cu.
constexpr uint32_t pattern_value(size_t i, int rank, uint32_t mask) {
  uint32_t v = static_cast<uint32_t>(i ^ (i >> 32)) * 0x9e3779b1u;
  v += static_cast<uint32_t>(rank) * 0x85ebca77u;
  v ^= v >> 15;
  v *= 0x2c1b3c6du;
  v ^= v >> 12;
  v *= 0x297a2d39u;
  v ^= v >> 15;
  return v & mask;
}

void fill_pattern(const LinkPattern& args);
// Elements that differ from it in any bit.
size_t count_wrong(const LinkPattern& args);

}  // namespace weft::kernels
