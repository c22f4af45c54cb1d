// Residual additions, SwiGLU, embedding rows and rotary embedding against double, and their exact
// promises.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/cpu_kernels.h"
#include "kernels/embedding.h"
#include "kernels/residual_add.h"
#include "kernels/rope.h"
#include "kernels/swiglu.h"
#include "runtime/base/error.h"
#include "tests/kernels/tensors.h"
#include "tests/support/tolerance.h"

namespace weft::kernels {
namespace {

using test::Tensor;

TEST(ResidualAdd, RoundsOnceForEveryTypeAndBias) {
  ThreadPool pool(2);
  Stream stream(pool);
  for (DType dtype : test::kFloatTypes)
    for (bool with_bias : {false, true})
      for (size_t hidden : {1, 33, 64}) {
        const size_t tokens = 31;
        const Tensor partial = Tensor::random(DType::f32, tokens * hidden, 1);
        const Tensor bias = Tensor::random(DType::bf16, hidden, 2);
        Tensor residual = Tensor::random(dtype, tokens * hidden, 3);
        const std::vector<float> sums = partial.values(), biases = bias.values();
        std::vector<float> want = residual.values();
        for (size_t i = 0; i < want.size(); ++i)
          want[i] += with_bias ? sums[i] + biases[i % hidden] : sums[i];
        Tensor rounded(dtype, want.size());
        convert(want.data(), DType::f32, rounded.out().data, dtype, want.size());
        ResidualAdd a;
        a.partial = partial.in().as<float>();
        if (with_bias) a.bias = bias.in();
        a.residual = residual.out();
        a.tokens = tokens;
        a.hidden = hidden;
        residual_add(a, stream);
        EXPECT_EQ(residual.bytes(), rounded.bytes()) << test::name(dtype) << " " << hidden;
      }
}

SwiGlu swiglu_args(const Tensor& in, Tensor& out, size_t tokens, size_t ffn) {
  SwiGlu a;
  a.gate_up = in.in();
  a.out = out.out();
  a.tokens = tokens;
  a.ffn = ffn;
  return a;
}

TEST(SwiGlu, AgainstDoubleAndTheSameOnEverySet) {
  ThreadPool pool(2);
  Stream stream(pool);
  for (DType in : test::kFloatTypes)
    for (DType out : test::kFloatTypes)
      for (size_t ffn : {1, 31, 33, 64, 1100})
        for (size_t tokens : {1, 33}) {
          const Tensor x = Tensor::random(in, tokens * 2 * ffn, 1, 4);
          Tensor want(out, tokens * ffn);
          swiglu<double>(swiglu_args(x, want, tokens, ffn), stream);
          std::vector<float> first;
          for (const CpuKernels* cpu : usable_cpu_kernels()) {
            Tensor got(out, tokens * ffn);
            swiglu_with(*cpu, swiglu_args(x, got, tokens, ffn), stream);
            EXPECT_TRUE(test::near(got.values(), want.values(), out,
                                   fmt::format("{} [{}, 2, {}]", cpu->name, tokens, ffn)));
            if (first.empty()) first = got.values();
            EXPECT_EQ(got.values(), first) << cpu->name;
          }
        }
}

TEST(SwiGlu, FarEndsOfTheSigmoid) {
  ThreadPool pool(1);
  Stream stream(pool);
  const std::vector<float> x{-1000, -90, -20, 0, 20, 1000, 1, 1, 1, 1, 1, 1};
  std::vector<float> y(6);
  SwiGlu a;
  a.gate_up = x.data();
  a.out = y.data();
  a.tokens = 1;
  a.ffn = 6;
  swiglu(a, stream);
  EXPECT_EQ(y[0], 0);
  EXPECT_LE(std::abs(y[1]), 1e-36f);
  EXPECT_NEAR(y[2], -20 / (1 + std::exp(20.0)), 1e-13);
  EXPECT_EQ(y[3], 0);
  EXPECT_FLOAT_EQ(y[4], 20);
  EXPECT_EQ(y[5], 1000);
}

// Every set's exponential, near and far, against the double one rounded.
TEST(Exp, WithinTwoUnitsEverywhere) {
  for (const CpuKernels* cpu : usable_cpu_kernels()) {
    for (float x = -104; x < 88.7f; x += 0.00717f) {
      const double want = std::exp(double{x});
      const float got = cpu->exp(x);
      const float unit =
          std::nextafter(static_cast<float>(want), INFINITY) - static_cast<float>(want);
      ASSERT_LE(std::abs(got - want), 1.5 * unit) << cpu->name << " exp(" << x << ") = " << got;
      ASSERT_EQ(got, best_cpu_kernels().exp(x)) << cpu->name << " " << x;
    }
    EXPECT_EQ(cpu->exp(0), 1);
    EXPECT_EQ(cpu->exp(-INFINITY), 0);
    EXPECT_EQ(cpu->exp(-200), 0);
    EXPECT_EQ(cpu->exp(INFINITY), INFINITY);
    EXPECT_EQ(cpu->exp(100), INFINITY);
    EXPECT_TRUE(std::isnan(cpu->exp(NAN)));
  }
}

TEST(Embedding, RowsOfTheShardAndZerosForOthers) {
  ThreadPool pool(2);
  Stream stream(pool);
  for (DType from : test::kFloatTypes)
    for (size_t hidden : {1, 33, 64}) {
      const Tensor table = Tensor::random(from, 10 * hidden, 1);
      const std::vector<int32_t> ids{20, 29, 24, 19, 30, 0, 24};
      Tensor y(DType::f32, ids.size() * hidden);
      Embedding a;
      a.table = table.in();
      a.ids = ids.data();
      a.y = y.out();
      a.tokens = ids.size();
      a.hidden = hidden;
      a.shard_begin = 20;
      a.shard_rows = 10;
      embedding(a, stream);
      const std::vector<float> rows = table.values(), got = y.values();
      for (size_t t = 0; t < ids.size(); ++t)
        for (size_t i = 0; i < hidden; ++i) {
          const bool inside = ids[t] >= 20 && ids[t] < 30;
          EXPECT_EQ(got[t * hidden + i],
                    inside ? rows[static_cast<size_t>(ids[t] - 20) * hidden + i] : 0.0f);
        }
    }
}

TEST(Embedding, NegativeZeroBecomesPositive) {
  ThreadPool pool(1);
  Stream stream(pool);
  const std::vector<bf16> table{round_bf16(-0.0f)};
  std::vector<bf16> y{round_bf16(7)};
  const int32_t id = 0;
  Embedding a;
  a.table = table.data();
  a.ids = &id;
  a.y = y.data();
  a.tokens = a.hidden = a.shard_rows = 1;
  embedding(a, stream);
  EXPECT_EQ(y[0].bits, 0);
}

TEST(Rope, RotatesHalvesByThePositionsRow) {
  ThreadPool pool(2);
  Stream stream(pool);
  for (DType dtype : test::kFloatTypes)
    for (size_t head_dim : {2, 6, 64, 128})
      for (size_t n_heads : {1, 3}) {
        const size_t tokens = 33, context = 40, half = head_dim / 2;
        const size_t stride = n_heads * head_dim + 9;
        std::vector<float> table;
        std::vector<int32_t> positions;
        for (size_t p = 0; p < context; ++p)
          for (size_t i = 0; i < half; ++i) {
            const double angle = static_cast<double>(p) / std::pow(100.0, double(i) / double(half));
            table.push_back(static_cast<float>(std::cos(angle)));
            table.push_back(static_cast<float>(std::sin(angle)));
          }
        for (size_t t = 0; t < tokens; ++t) positions.push_back(static_cast<int32_t>((t * 7) % 40));
        Tensor x = Tensor::random(dtype, tokens * stride, 1);
        const std::vector<float> before = x.values();
        std::vector<float> want = before;
        for (size_t t = 0; t < tokens; ++t)
          for (size_t h = 0; h < n_heads; ++h)
            for (size_t i = 0; i < half; ++i) {
              const size_t at = t * stride + h * head_dim + i;
              const float* pair =
                  table.data() + static_cast<size_t>(positions[t]) * head_dim + 2 * i;
              want[at] = static_cast<float>(double{before[at]} * pair[0] -
                                            double{before[at + half]} * pair[1]);
              want[at + half] = static_cast<float>(double{before[at + half]} * pair[0] +
                                                   double{before[at]} * pair[1]);
            }
        Rope a;
        a.x = x.out();
        a.table = table.data();
        a.positions = positions.data();
        a.tokens = tokens;
        a.n_heads = n_heads;
        a.head_dim = head_dim;
        a.stride = stride;
        rope(a, stream);
        const std::vector<float> got = x.values();
        EXPECT_TRUE(
            test::near(got, want, dtype, fmt::format("[{}, {}, {}]", tokens, n_heads, head_dim)));
        for (size_t i = 0; i < got.size(); ++i)
          if (i % stride >= n_heads * head_dim) {
            EXPECT_EQ(got[i], before[i]) << "beside the row";
          }
      }
}

}  // namespace
}  // namespace weft::kernels
