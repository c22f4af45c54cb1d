// residual += partial (+ bias): the float32 sum of a row-parallel layer joins the residual stream
// and is rounded once.
#pragma once

#include "kernels/device.h"
#include "kernels/tensor.h"

namespace weft::kernels {

struct ResidualAdd {
  const float* partial = nullptr;  // [tokens, hidden]
  In bias;                         // [hidden] or null
  Out residual;                    // [tokens, hidden]
  size_t tokens = 0;
  size_t hidden = 0;
};

void residual_add(const ResidualAdd& args, Stream& stream);

}  // namespace weft::kernels
