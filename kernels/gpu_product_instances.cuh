// Picks an instance of the streaming kernel for a dtype.
#pragma once

#include "kernels/gpu_product_kernels.h"
#include "kernels/gpu_product_stream.cuh"

namespace weft::kernels {

// f16 models are few: they do with fewer instances.
template <class T>
constexpr bool kAll = true;
template <>
inline constexpr bool kAll<__half> = false;

template <class T, int kTokens, int kTiles, int kParts, StreamMode kMode = StreamMode::kWhole>
const void* instance() {
  return reinterpret_cast<const void*>(stream_product<T, kTokens, kTiles, kParts, kMode>);
}

// Four tiles of more tokens would not leave registers for two blocks an SM.
template <class T, int kTokens>
const void* whole(size_t tiles_at_once, size_t parts) {
  if (parts == 1) {
    if (tiles_at_once == 1) return instance<T, kTokens, 1, 1>();
    if constexpr (kTokens >= 32)
      if (tiles_at_once == 2) return instance<T, kTokens, 2, 1>();
    if constexpr (kAll<T> && (kTokens == 32 || kTokens == 64))
      if (tiles_at_once == 4) return instance<T, kTokens, 4, 1>();
    return nullptr;
  }
  if constexpr (kAll<T> && (kTokens == 32 || kTokens == 64)) {
    if (tiles_at_once == 2) return instance<T, kTokens, 2, 2>();
    if (tiles_at_once == 4) return instance<T, kTokens, 4, 2>();
  }
  return nullptr;
}

template <class T>
const void* stream_kernel(size_t group_tokens, size_t tiles_at_once, size_t parts,
                          StreamMode mode) {
  if (mode == StreamMode::kChunked) {
    if (tiles_at_once != 1 || parts != 1) return nullptr;
    if (group_tokens == 8) return instance<T, 8, 1, 1, StreamMode::kChunked>();
    if (group_tokens == 32) return instance<T, 32, 1, 1, StreamMode::kChunked>();
    return nullptr;
  }
  switch (group_tokens) {
    case 8:
      return whole<T, 8>(tiles_at_once, parts);
    case 16:
      return whole<T, 16>(tiles_at_once, parts);
    case 32:
      return whole<T, 32>(tiles_at_once, parts);
    case 64:
      return whole<T, 64>(tiles_at_once, parts);
    case 128:
      return whole<T, 128>(tiles_at_once, parts);
  }
  return nullptr;
}

}  // namespace weft::kernels
