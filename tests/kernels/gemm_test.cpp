// The product against double, and its bits against themselves: alone, in any batch, on any number
// of threads and on every instruction set.
#include "kernels/gemm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/cpu_kernels.h"
#include "runtime/base/error.h"
#include "tests/kernels/tensors.h"
#include "tests/support/tolerance.h"

namespace weft::kernels {
namespace {

using test::name;
using test::Tensor;

struct Case {
  size_t tokens, n, k;
  size_t n_chunks = 1;
  DType x = DType::f32, w = DType::f32, y = DType::f32;
  bool bias = false;
  bool invariant = true;

  std::string text() const {
    return fmt::format("[{}, {}] x [{}, {}] chunks {} {} {} {}", tokens, k, n, k, n_chunks, name(x),
                       name(w), name(y));
  }
};

// Inputs and a poisoned output whose rows are wider than need be.
struct Problem {
  Case c;
  size_t x_stride, y_stride;
  Tensor x, w, bias, y;
  std::vector<float> workspace;

  explicit Problem(const Case& args)
      : c(args),
        x_stride(c.k + 5),
        y_stride(c.n + 3),
        x(Tensor::random(c.x, c.tokens * x_stride, 1)),
        w(Tensor::random(c.w, c.n * c.k, 2, 1 / std::sqrt(static_cast<float>(c.k)))),
        bias(Tensor::random(DType::f32, c.n, 3)),
        y(c.y, c.tokens * y_stride),
        workspace(gemm_workspace_floats(c.tokens, c.n, c.k), NAN) {}

  Gemm args() {
    Gemm a;
    a.x = x.in();
    a.w = w.in();
    if (c.bias) a.bias = bias.in();
    a.y = y.out();
    a.tokens = c.tokens;
    a.n = c.n;
    a.k = c.k;
    a.x_stride = x_stride;
    a.y_stride = y_stride;
    a.n_chunks = c.n_chunks;
    a.invariant = c.invariant;
    a.workspace = workspace.data();
    return a;
  }
  std::vector<float> result() const { return y.rows(c.tokens, c.n, y_stride); }
};

void expect_near_double(const Case& c, size_t n_threads = 2) {
  ThreadPool pool(n_threads);
  Stream stream(pool);
  Problem got(c), want(c);
  gemm(got.args(), stream);
  gemm<double>(want.args(), stream);
  EXPECT_TRUE(test::near(got.result(), want.result(), c.y, c.text()));
  EXPECT_TRUE(got.y.gaps_untouched(c.tokens, c.n, got.y_stride)) << c.text();
}

TEST(Gemm, EveryTypeAgainstDouble) {
  for (DType x : test::kFloatTypes)
    for (DType w : test::kFloatTypes)
      for (DType y : test::kFloatTypes)
        for (size_t tokens : {1, 3, 9})
          expect_near_double({tokens, 33, 80, 1, x, w, y, tokens == 3});
}

TEST(Gemm, OddAndRoundShapesAgainstDouble) {
  for (size_t tokens : {1, 2, 3, 4, 5, 31, 33, 130})
    for (size_t n : {1, 31, 33, 64})
      for (size_t k : {1, 15, 16, 31, 33, 512, 530})
        expect_near_double({tokens, n, k, 1, DType::bf16, DType::bf16, DType::f32, n == 31});
}

TEST(Gemm, ChunksAgainstDouble) {
  for (size_t n_chunks : {2, 4, 8})
    for (size_t chunk : {1, 24, 33, 600})
      for (size_t tokens : {1, 6})
        expect_near_double({tokens, 31, n_chunks * chunk, n_chunks, DType::f32, DType::bf16});
}

TEST(Gemm, FastModeAgainstDouble) {
  for (DType w : test::kFloatTypes)
    for (DType y : test::kFloatTypes)
      for (size_t tokens : {1, 31, 32, 70})
        expect_near_double({tokens, 131, 600, 4, DType::bf16, w, y, true, false});
}

// Threads that enter the BLAS at the same moment must not be given one buffer: the serial OpenBLAS
// of Debian 12 was wrong in one of some 300 such starts.
TEST(Gemm, FastModeFromThreadsThatStartTogether) {
  const Case c{32, 128, 600, 1, DType::bf16, DType::bf16, DType::f32, false, false};
  ThreadPool alone(1);
  Stream one(alone);
  Problem want(c);
  gemm(want.args(), one);
  for (int start = 0; start < 400; ++start) {
    ThreadPool pool(4);
    Stream stream(pool);
    Problem got(c);
    gemm(got.args(), stream);
    ASSERT_EQ(got.result(), want.result()) << "start " << start;
  }
}

// The definition, written out once more: lanes, tree over lanes, tree over chunks.
float defined_element(const Problem& p, size_t t, size_t n) {
  const std::vector<float> x = p.x.values(), w = p.w.values();
  const size_t chunk = p.c.k / p.c.n_chunks;
  std::vector<float> parts;
  for (size_t c = 0; c < p.c.n_chunks; ++c) {
    float lane[16] = {};
    for (size_t i = 0; i < chunk; ++i)
      lane[i % 16] =
          std::fma(x[t * p.x_stride + c * chunk + i], w[n * p.c.k + c * chunk + i], lane[i % 16]);
    for (size_t step : {8, 4, 2, 1})
      for (size_t i = 0; i < step; ++i) lane[i] += lane[i + step];
    parts.push_back(lane[0]);
  }
  while (parts.size() > 1) {
    for (size_t i = 0; i < parts.size() / 2; ++i) parts[i] = parts[2 * i] + parts[2 * i + 1];
    parts.resize(parts.size() / 2);
  }
  return p.c.bias ? parts[0] + p.bias.values()[n] : parts[0];
}

TEST(Gemm, InvariantModeHasTheDefinedBits) {
  ThreadPool pool(1);
  Stream stream(pool);
  for (const Case& c : {Case{1, 9, 1100, 4, DType::f32, DType::bf16, DType::f32, true},
                        Case{6, 9, 1100, 4, DType::f16, DType::f16, DType::f32, true},
                        Case{3, 5, 37, 1, DType::bf16, DType::f32, DType::f32, false}})
    for (const CpuKernels* cpu : usable_cpu_kernels()) {
      Problem p(c);
      gemm_with(*cpu, p.args(), stream);
      const std::vector<float> got = p.result();
      for (size_t t = 0; t < c.tokens; ++t)
        for (size_t n = 0; n < c.n; ++n)
          EXPECT_EQ(got[t * c.n + n], defined_element(p, t, n))
              << cpu->name << " " << c.text() << " at " << t << ", " << n;
    }
}

TEST(Gemm, BitsDoNotDependOnInstructionSetOrThreads) {
  for (size_t tokens : {1, 2, 3, 4, 5, 17})
    for (DType w : test::kFloatTypes) {
      const Case c{tokens, 203, 1064, 2, DType::bf16, w, DType::f32, true};
      std::vector<float> first;
      for (size_t n_threads : {1, 2, 3}) {
        ThreadPool pool(n_threads);
        Stream stream(pool);
        for (const CpuKernels* cpu : usable_cpu_kernels()) {
          Problem p(c);
          gemm_with(*cpu, p.args(), stream);
          if (first.empty()) first = p.result();
          EXPECT_EQ(p.result(), first) << cpu->name << " " << n_threads << " threads " << c.text();
        }
      }
    }
}

TEST(Gemm, BitsDoNotDependOnNeighbours) {
  ThreadPool pool(2);
  Stream stream(pool);
  const Case c{150, 130, 1040, 4, DType::bf16, DType::bf16, DType::f32, true};
  Problem whole(c);
  gemm(whole.args(), stream);
  const std::vector<float> want = whole.result();
  for (size_t tokens : {1, 2, 3, 4, 5, 33})
    for (size_t rows : {1, 7, 130})
      for (size_t token : {0, 1, 67}) {
        Problem part(c);
        Gemm a = part.args();
        const size_t row = 130 - rows;
        a.x = part.x.in(token * part.x_stride);
        a.w = part.w.in(row * c.k);
        a.bias = part.bias.in(row);
        a.tokens = tokens;
        a.n = rows;
        gemm(a, stream);
        const std::vector<float> got = part.y.rows(tokens, rows, part.y_stride);
        for (size_t t = 0; t < tokens; ++t)
          for (size_t n = 0; n < rows; ++n)
            ASSERT_EQ(got[t * rows + n], want[(token + t) * c.n + row + n])
                << tokens << " tokens from " << token << ", " << rows << " rows: " << t << ", "
                << n;
      }
}

TEST(Gemm, InPlaceFloatRowsAndNaNStayInTheirRow) {
  ThreadPool pool(1);
  Stream stream(pool);
  Problem p({5, 33, 64});
  p.x.out().as<float>()[2 * p.x_stride + 7] = NAN;
  gemm(p.args(), stream);
  const std::vector<float> got = p.result();
  for (size_t i = 0; i < got.size(); ++i) EXPECT_EQ(std::isnan(got[i]), i / 33 == 2) << i;
}

TEST(Gemm, BrokenPromisesThrow) {
  ThreadPool pool(1);
  Stream stream(pool);
  Problem p({1, 4, 12});
  Gemm a = p.args();
  a.n_chunks = 3;
  EXPECT_THROW(gemm(a, stream), std::logic_error);
  a.n_chunks = 8;
  EXPECT_THROW(gemm(a, stream), std::logic_error);
}

}  // namespace
}  // namespace weft::kernels
