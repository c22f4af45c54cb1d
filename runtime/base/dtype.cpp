// Names, sizes and bulk conversion of element types.
#include "runtime/base/dtype.h"

#include <cstring>

#include "runtime/base/error.h"

namespace weft {

size_t dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::fp8:
    case DType::int8:
    case DType::int4:
      return 1;
    case DType::bf16:
    case DType::f16:
      return 2;
    case DType::f32:
    case DType::i32:
      return 4;
    case DType::f64:
      return 8;
  }
  throw std::logic_error("dtype out of range");
}

std::string_view dtype_name(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return "bf16";
    case DType::f16:
      return "f16";
    case DType::f32:
      return "f32";
    case DType::i32:
      return "i32";
    case DType::f64:
      return "f64";
    case DType::fp8:
      return "fp8";
    case DType::int8:
      return "int8";
    case DType::int4:
      return "int4";
  }
  throw std::logic_error("dtype out of range");
}

DType dtype_from_name(std::string_view name) {
  for (DType dtype : {DType::f32, DType::f16, DType::bf16, DType::i32, DType::f64})
    if (dtype_name(dtype) == name) return dtype;
  throw input_error("unknown dtype \"{}\": known are f32, f16, bf16", name);
}

void convert(const void* from, DType from_dtype, void* to, DType to_dtype, size_t n) {
  if (from_dtype == to_dtype) {
    std::memcpy(to, from, n * dtype_bytes(to_dtype));
    return;
  }
  with_float_type(from_dtype, [&](auto source) {
    with_float_type(to_dtype, [&](auto target) {
      const auto* in = static_cast<const decltype(source)*>(from);
      auto* out = static_cast<decltype(target)*>(to);
      for (size_t i = 0; i < n; ++i) out[i] = from_float<decltype(target)>(to_float(in[i]));
    });
  });
}

}  // namespace weft
