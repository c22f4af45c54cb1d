// y = x / sqrt(mean(x²) + eps) · weight, over groups of `width` elements. Zhang and Sennrich,
// "Root Mean Square Layer Normalization", 2019.
#pragma once

#include "kernels/device.h"
#include "kernels/tensor.h"

namespace weft::kernels {

// A token row holds `groups` groups side by side (1 for the residual stream, n_heads for QK norm,
// which share one weight). x and y may be the same memory. The sum of squares is taken in 16 fixed
// lanes; x / rms is rounded to the dtype of x before it is multiplied by the weight, as
// transformers does.
struct RmsNorm {
  In x;       // [tokens, groups, width], rows x_stride elements apart
  In weight;  // [width]
  Out y;      // [tokens, groups, width], rows y_stride elements apart
  size_t tokens = 0;
  size_t groups = 1;
  size_t width = 0;
  size_t x_stride = 0;
  size_t y_stride = 0;
  float eps = 1e-6f;
};

template <class Acc = float>
void rms_norm(const RmsNorm& args, Stream& stream);

}  // namespace weft::kernels
