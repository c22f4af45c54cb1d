// RMSNorm against double, in place, in groups, and rounded where transformers rounds.
#include "kernels/rms_norm.h"

#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "tests/kernels/tensors.h"
#include "tests/support/tolerance.h"

namespace weft::kernels {
namespace {

using test::Tensor;

RmsNorm norm_args(const Tensor& x, const Tensor& weight, Tensor& y, size_t tokens, size_t groups,
                  size_t width, size_t stride) {
  RmsNorm a;
  a.x = x.in();
  a.weight = weight.in();
  a.y = y.out();
  a.tokens = tokens;
  a.groups = groups;
  a.width = width;
  a.x_stride = stride;
  a.y_stride = stride;
  return a;
}

TEST(RmsNorm, AgainstDouble) {
  ThreadPool pool(2);
  Stream stream(pool);
  for (DType dtype : test::kFloatTypes)
    for (size_t groups : {1, 3})
      for (size_t width : {1, 31, 33, 64, 2048})
        for (size_t tokens : {1, 33}) {
          const size_t stride = groups * width + 7;
          const Tensor x = Tensor::random(dtype, tokens * stride, 1);
          const Tensor weight = Tensor::random(dtype, width, 2);
          Tensor got(dtype, tokens * stride), want(dtype, tokens * stride);
          rms_norm(norm_args(x, weight, got, tokens, groups, width, stride), stream);
          rms_norm<double>(norm_args(x, weight, want, tokens, groups, width, stride), stream);
          const std::string shape = fmt::format("[{}, {}, {}]", tokens, groups, width);
          EXPECT_TRUE(test::near(got.rows(tokens, groups * width, stride),
                                 want.rows(tokens, groups * width, stride), dtype, shape));
          EXPECT_TRUE(got.gaps_untouched(tokens, groups * width, stride)) << shape;
        }
}

TEST(RmsNorm, InPlaceGivesTheSameBits) {
  ThreadPool pool(1);
  Stream stream(pool);
  Tensor x = Tensor::random(DType::bf16, 3 * 100, 1);
  const Tensor weight = Tensor::random(DType::bf16, 50, 2);
  Tensor y(DType::bf16, 3 * 100);
  rms_norm(norm_args(x, weight, y, 3, 2, 50, 100), stream);
  rms_norm(norm_args(x, weight, x, 3, 2, 50, 100), stream);
  EXPECT_EQ(x.bytes(), y.bytes());
}

// 3 / sqrt(9) = 1 exactly, so what remains is the weight itself; eps counts.
TEST(RmsNorm, KnownValues) {
  ThreadPool pool(1);
  Stream stream(pool);
  const std::vector<float> x(32, 3.0f), weight(32, 0.75f);
  std::vector<float> y(32);
  RmsNorm a;
  a.x = x.data();
  a.weight = weight.data();
  a.y = y.data();
  a.tokens = 1;
  a.width = a.x_stride = a.y_stride = 32;
  a.eps = 0;
  rms_norm(a, stream);
  EXPECT_EQ(y, std::vector<float>(32, 0.75f));
  a.eps = 27;  // 3 / sqrt(9 + 27)
  rms_norm(a, stream);
  EXPECT_EQ(y, std::vector<float>(32, 0.375f));
}

// The quotient is rounded to bf16 before the weight: 1.00390625 · 3 would otherwise round up.
TEST(RmsNorm, RoundsBeforeTheWeight) {
  ThreadPool pool(1);
  Stream stream(pool);
  const std::vector<bf16> x{round_bf16(1.0f), round_bf16(1.0078125f)};
  const std::vector<float> weight{3.0f, 3.0f};
  std::vector<float> y(2);
  RmsNorm a;
  a.x = x.data();
  a.weight = weight.data();
  a.y = y.data();
  a.tokens = 1;
  a.width = a.x_stride = a.y_stride = 2;
  a.eps = 0;
  rms_norm(a, stream);
  for (float value : y) EXPECT_EQ(value / 3.0f, to_float(round_bf16(value / 3.0f)));
}

}  // namespace
}  // namespace weft::kernels
