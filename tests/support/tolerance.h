// The one table of tolerances, and the comparison that every numeric test uses:
// |x − ref| <= atol(dtype) + rtol(dtype) · |ref|.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <span>
#include <string>

#include "runtime/base/dtype.h"

namespace weft::test {

struct Tolerance {
  double atol;
  double rtol;
};

// Two roundings to the dtype that fall the other way, plus float32 sums of values around 1 in any
// order.
inline Tolerance tolerance(DType dtype) {
  switch (dtype) {
    case DType::bf16:
      return {2e-4, 1.6e-2};
    case DType::f16:
      return {2e-5, 2e-3};
    default:
      return {2e-6, 1e-5};
  }
}

// All of `got` against `want`; the message names the worst element. NaN never passes.
inline testing::AssertionResult near(std::span<const float> got, std::span<const float> want,
                                     DType dtype, const std::string& shape) {
  if (got.size() != want.size())
    return testing::AssertionFailure()
           << shape << ": " << got.size() << " values, not " << want.size();
  const Tolerance limit = tolerance(dtype);
  double worst = 0;
  size_t at = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    if (got[i] == want[i]) continue;  // equal infinities too
    const double error =
        std::abs(double{got[i]} - want[i]) / (limit.atol + limit.rtol * std::abs(double{want[i]}));
    if (error <= worst) continue;
    worst = std::isnan(error) ? INFINITY : error;
    at = i;
  }
  if (worst <= 1) return testing::AssertionSuccess();
  return testing::AssertionFailure()
         << shape << " " << dtype_name(dtype) << ": worst at " << at << ": got " << got[at]
         << ", want " << want[at] << ", " << worst << " times the tolerance";
}

}  // namespace weft::test
