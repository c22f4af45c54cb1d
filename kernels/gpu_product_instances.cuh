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

template <class T, int kTokens, int kTiles, int kCluster, StreamMode kMode = StreamMode::kWhole>
const void* instance() {
  return reinterpret_cast<const void*>(stream_product<T, kTokens, kTiles, kCluster, kMode>);
}

template <class T, int kTokens, int kCluster>
const void* with_tiles(size_t tiles_at_once) {
  if (tiles_at_once == 1) return instance<T, kTokens, 1, kCluster>();
  if (tiles_at_once == 2) return instance<T, kTokens, 2, kCluster>();
  // More would not leave registers for two blocks an SM.
  if constexpr (kAll<T> && (kTokens == 32 || kTokens == 64))
    if (tiles_at_once == 4) return instance<T, kTokens, 4, kCluster>();
  return nullptr;
}

template <class T, int kTokens>
const void* with_cluster(size_t tiles_at_once, size_t cluster) {
  if (cluster == 1) return with_tiles<T, kTokens, 1>(tiles_at_once);
  if constexpr (kAll<T> && kTokens >= 32)
    if (cluster == 2) return with_tiles<T, kTokens, 2>(tiles_at_once);
  if constexpr (kAll<T> && kTokens >= 64)
    if (cluster == 4) return with_tiles<T, kTokens, 4>(tiles_at_once);
  return nullptr;
}

template <class T>
const void* stream_kernel(size_t group_tokens, size_t tiles_at_once, size_t cluster,
                          StreamMode mode) {
  if (mode == StreamMode::kChunked) {
    if (tiles_at_once != 1 || cluster != 1) return nullptr;
    if (group_tokens == 8) return instance<T, 8, 1, 1, StreamMode::kChunked>();
    if (group_tokens == 32) return instance<T, 32, 1, 1, StreamMode::kChunked>();
    return nullptr;
  }
  if (mode == StreamMode::kNormed) {
    if (group_tokens != 8 || cluster != 1) return nullptr;
    if (tiles_at_once == 1) return instance<T, 8, 1, 1, StreamMode::kNormed>();
    if (tiles_at_once == 2) return instance<T, 8, 2, 1, StreamMode::kNormed>();
    return nullptr;
  }
  switch (group_tokens) {
    case 8:
      return with_cluster<T, 8>(tiles_at_once, cluster);
    case 16:
      return with_cluster<T, 16>(tiles_at_once, cluster);
    case 32:
      return with_cluster<T, 32>(tiles_at_once, cluster);
    case 64:
      return with_cluster<T, 64>(tiles_at_once, cluster);
    case 128:
      return with_cluster<T, 128>(tiles_at_once, cluster);
  }
  return nullptr;
}

}  // namespace weft::kernels
