// Element types of tensors, and the conversions between them that every backend rounds alike.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace weft {

// fp8, int8 and int4 are known to plans alone: nothing computes with them yet.
enum class DType : uint8_t { f32, f16, bf16, i32, f64, fp8, int8, int4 };

size_t dtype_bytes(DType dtype);               // of int4: a pair of them
std::string_view dtype_name(DType dtype);      // "f32", "f16", "bf16", "i32", "f64", "fp8", …
DType dtype_from_name(std::string_view name);  // throws Error and lists the legal names

// Storage types: conversions only, arithmetic is done in float.
struct bf16 {
  uint16_t bits;
};
struct f16 {
  uint16_t bits;
};

inline float to_float(float x) { return x; }
inline float to_float(double x) { return static_cast<float>(x); }
inline float to_float(bf16 x) { return std::bit_cast<float>(static_cast<uint32_t>(x.bits) << 16); }

// Exact: every half value is a float. Subnormals are scaled by the hardware's own multiply.
inline float to_float(f16 x) {
  const uint32_t sign = (x.bits & 0x8000u) << 16;
  const uint32_t rest = x.bits & 0x7fffu;
  if (rest >= 0x7c00u) return std::bit_cast<float>(sign | 0x7f800000u | ((rest & 0x3ffu) << 13));
  if (rest >= 0x0400u) return std::bit_cast<float>(sign | ((rest << 13) + 0x38000000u));
  const float magnitude = static_cast<float>(rest) * 0x1p-24f;
  return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
}

// Round to nearest, ties to even; NaN stays NaN (quiet), overflow goes to infinity.
inline bf16 round_bf16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  if ((u & 0x7fffffffu) > 0x7f800000u) return {static_cast<uint16_t>((u >> 16) | 0x0040u)};
  return {static_cast<uint16_t>((u + 0x7fffu + ((u >> 16) & 1u)) >> 16)};
}

inline f16 round_f16(float x) {
  const uint32_t u = std::bit_cast<uint32_t>(x);
  const uint32_t sign = (u >> 16) & 0x8000u;
  const uint32_t a = u & 0x7fffffffu;
  if (a > 0x7f800000u) return {static_cast<uint16_t>(sign | 0x7e00u)};
  if (a >= 0x477ff000u) return {static_cast<uint16_t>(sign | 0x7c00u)};  // >= 65520
  if (a < 0x38800000u) {  // subnormal half: adding 0.5 puts the half's last bit at float's last bit
    const float shifted = std::bit_cast<float>(a) + 0.5f;
    return {static_cast<uint16_t>(sign | (std::bit_cast<uint32_t>(shifted) - 0x3f000000u))};
  }
  const uint32_t rounded = a + 0xfffu + ((a >> 13) & 1u);
  return {static_cast<uint16_t>(sign | ((rounded - 0x38000000u) >> 13))};
}

template <class T>
T from_float(float x);
template <>
inline float from_float<float>(float x) {
  return x;
}
template <>
inline bf16 from_float<bf16>(float x) {
  return round_bf16(x);
}
template <>
inline f16 from_float<f16>(float x) {
  return round_f16(x);
}

template <class T>
struct dtype_of;
template <>
struct dtype_of<float> {
  static constexpr DType value = DType::f32;
};
template <>
struct dtype_of<bf16> {
  static constexpr DType value = DType::bf16;
};
template <>
struct dtype_of<f16> {
  static constexpr DType value = DType::f16;
};

// Calls f(T{}) with the storage type of a float dtype (f32, f16 or bf16).
template <class F>
decltype(auto) with_float_type(DType dtype, F&& f) {
  switch (dtype) {
    case DType::bf16:
      return f(bf16{});
    case DType::f16:
      return f(f16{});
    default:
      return f(float{});
  }
}

// Converts n elements; source and destination may be of any float dtype but must not overlap.
void convert(const void* from, DType from_dtype, void* to, DType to_dtype, size_t n);

}  // namespace weft
