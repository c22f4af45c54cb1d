// How weights and KV planes are stored on a GPU, and the bytes that takes. Formats that only a plan
// knows of yet (fp8, int8, int4) have no storage type in runtime/base/dtype.h.
#pragma once

#include <cstddef>
#include <string_view>

namespace weft::planner {

enum class NumberFormat { bf16, fp8, int8, int4 };
inline constexpr std::string_view kNumberFormatNames[] = {"bf16", "fp8", "int8", "int4"};

inline std::string_view format_name(NumberFormat format) {
  return kNumberFormatNames[static_cast<size_t>(format)];
}

// Bytes of one number without its scale.
inline double element_bytes(NumberFormat format) {
  constexpr double bytes[] = {2, 1, 1, 0.5};
  return bytes[static_cast<size_t>(format)];
}

// Bytes of one weight with its share of the scales: a f32 for 128 x 128 weights (fp8), a f16 for
// 128 of them (int8, int4).
inline double weight_bytes_each(NumberFormat format) {
  constexpr double scales[] = {0, 4.0 / (128 * 128), 2.0 / 128, 2.0 / 128};
  return element_bytes(format) + scales[static_cast<size_t>(format)];
}

// Bytes of one number of the KV cache: fp8 has a scale a tensor, int8 and int4 a f16 for a group of
// 32 (design: scales per group beside the block).
inline double kv_bytes_each(NumberFormat format) {
  constexpr double scales[] = {0, 0, 2.0 / 32, 2.0 / 32};
  return element_bytes(format) + scales[static_cast<size_t>(format)];
}

}  // namespace weft::planner
