// Products on the GPU: every epilogue and dtype against double, the norm in front, and the bits of
// invariant mode against themselves in any batch, shard and cut.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/gemm.h"
#include "kernels/gpu_cublas.h"
#include "kernels/gpu_product.h"
#include "kernels/gpu_product_stream.h"
#include "kernels/rms_norm.h"
#include "runtime/base/error.h"
#include "tests/kernels/gpu/gpu_tensors.h"
#include "tests/support/tolerance.h"

namespace weft::kernels {
namespace {

using test::GpuBytes;
using test::GpuTensor;
using test::Tensor;

struct Case {
  size_t tokens, n, k;
  DType dtype = DType::bf16;
  GpuProduct::Epilogue epilogue = GpuProduct::kStore;
  bool bias = false;
  bool norm = false;
  size_t n_chunks = 1;
  bool invariant = false;

  DType y_dtype() const { return epilogue == GpuProduct::kPartial ? DType::f32 : dtype; }
  size_t y_width() const { return epilogue == GpuProduct::kSwiglu ? n / 2 : n; }
  std::string text() const {
    return fmt::format("[{}, {}] x [{}, {}] {} epilogue {} bias {} norm {} chunks {} {}", tokens, k,
                       n, k, dtype_name(dtype), static_cast<int>(epilogue), bias, norm, n_chunks,
                       invariant ? "invariant" : "fast");
  }
};

// Inputs and a poisoned output on the GPU, rows wider than need be.
struct Problem {
  Case c;
  size_t x_stride, y_stride;
  GpuTensor x, w, bias, norm, residual, y;
  GpuBytes workspace;

  explicit Problem(const Case& args)
      : c(args),
        x_stride((c.k + 15) / 8 * 8),
        y_stride(c.y_width() + 3),
        x(GpuTensor::random(c.dtype, c.tokens * x_stride, 1)),
        w(GpuTensor::random(c.dtype, c.n * c.k, 2, 1 / std::sqrt(static_cast<float>(c.k)))),
        bias(GpuTensor::random(c.dtype, c.n, 3)),
        norm(GpuTensor::random(c.dtype, c.k, 4)),
        residual(GpuTensor::random(c.dtype, c.tokens * y_stride, 5)),
        y(c.y_dtype(), c.tokens * y_stride),
        workspace(gpu_product_workspace_bytes(c.tokens, c.n, c.k, c.dtype)) {}

  GpuProduct args() {
    GpuProduct a;
    a.x = x.in();
    a.w = w.in();
    if (c.bias) a.bias = bias.in();
    if (c.norm) a.norm_weight = norm.in();
    if (c.epilogue == GpuProduct::kAddResidual) a.residual = residual.in();
    a.y = y.out();
    a.epilogue = c.epilogue;
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
  std::vector<float> result() const { return y.fetch().rows(c.tokens, c.y_width(), y_stride); }
};

// x as the product sees it, in its dtype.
Tensor reference_x(const Problem& p, Stream& stream) {
  if (!p.c.norm) return p.x.uploaded();
  Tensor normed(p.c.dtype, p.c.tokens * p.x_stride);
  RmsNorm norm;
  norm.x = p.x.uploaded().in();
  norm.weight = p.norm.uploaded().in();
  norm.y = normed.out();
  norm.tokens = p.c.tokens;
  norm.width = p.c.k;
  norm.x_stride = norm.y_stride = p.x_stride;
  rms_norm<double>(norm, stream);
  return normed;
}

// x: rows p.x_stride apart.
std::vector<float> reference_of(const Problem& p, const Tensor& x) {
  ThreadPool pool(1);
  Stream stream(pool);
  const Case& c = p.c;
  std::vector<float> sums(c.tokens * c.n);
  Gemm gemm_args;
  gemm_args.x = x.in();
  gemm_args.w = p.w.uploaded().in();
  if (c.bias && c.epilogue != GpuProduct::kPartial) gemm_args.bias = p.bias.uploaded().in();
  gemm_args.y = sums.data();
  gemm_args.tokens = c.tokens;
  gemm_args.n = gemm_args.y_stride = c.n;
  gemm_args.k = c.k;
  gemm_args.x_stride = p.x_stride;
  gemm<double>(gemm_args, stream);
  if (c.epilogue == GpuProduct::kAddResidual) {
    const std::vector<float> residual = p.residual.uploaded().rows(c.tokens, c.n, p.y_stride);
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += residual[i];
  }
  if (c.epilogue != GpuProduct::kSwiglu) return sums;
  std::vector<float> products(sums.size() / 2);
  for (size_t i = 0; i < products.size(); ++i) {
    const double gate = sums[2 * i];
    products[i] = static_cast<float>(gate / (1 + std::exp(-gate)) * sums[2 * i + 1]);
  }
  return products;
}

std::vector<float> reference(const Problem& p) {
  ThreadPool pool(1);
  Stream stream(pool);
  return reference_of(p, reference_x(p, stream));
}

// The matrix units add with less care than float32, and a normalised x may round the other way.
DType judged_as(const Case& c) {
  return c.y_dtype() == DType::f32 && c.dtype != DType::f32 ? DType::f16 : c.y_dtype();
}

void expect_near_double(const Case& c) {
  Problem p(c);
  gpu_product(p.args(), nullptr);
  EXPECT_TRUE(test::near(p.result(), reference(p), judged_as(c), c.text()));
  EXPECT_TRUE(p.y.fetch().gaps_untouched(c.tokens, c.y_width(), p.y_stride)) << c.text();
}

constexpr GpuProduct::Epilogue kEpilogues[] = {GpuProduct::kStore, GpuProduct::kAddResidual,
                                               GpuProduct::kSwiglu, GpuProduct::kPartial};

TEST(GpuProduct, EveryTypeAndEpilogueAgainstDouble) {
  WEFT_NEEDS_GPU();
  for (DType dtype : test::kFloatTypes)
    for (GpuProduct::Epilogue epilogue : kEpilogues)
      for (size_t tokens : {1, 3, 33})
        for (bool bias : {false, true})
          expect_near_double({tokens, 66, 136, dtype, epilogue, bias});
}

TEST(GpuProduct, OddAndRoundShapesAgainstDouble) {
  WEFT_NEEDS_GPU();
  for (size_t tokens : {1, 2, 7, 8, 9, 16, 17, 31, 33, 64, 65, 130})
    for (size_t n : {2, 30, 62, 66, 512, 9000})
      for (size_t k : {8, 24, 64, 520, 1100})
        if (n < 9000 || (k == 520 && tokens <= 64))
          expect_near_double({tokens, n, k, DType::bf16, GpuProduct::kSwiglu, tokens == 9});
}

TEST(GpuProduct, StridesThatTheCopyEngineRefuses) {
  WEFT_NEEDS_GPU();
  for (size_t k : {1, 15, 33, 530})
    expect_near_double({5, 33, k, DType::bf16, GpuProduct::kStore, true});
}

TEST(GpuProduct, NormInFrontAgainstDouble) {
  WEFT_NEEDS_GPU();
  for (DType dtype : test::kFloatTypes)
    for (size_t tokens : {1, 2, 3, 33})
      for (size_t k : {64, 136, 1024, 8192})
        expect_near_double({tokens, 70, k, dtype, GpuProduct::kStore, false, true});
}

TEST(GpuProduct, ResidualInPlace) {
  WEFT_NEEDS_GPU();
  for (size_t tokens : {1, 40}) {
    const Case c{tokens, 300, 256, DType::bf16, GpuProduct::kAddResidual, true};
    Problem apart(c), in_place(c);
    gpu_product(apart.args(), nullptr);
    GpuProduct a = in_place.args();
    a.y = in_place.residual.out();
    gpu_product(a, nullptr);
    EXPECT_EQ(in_place.residual.fetch().rows(tokens, c.n, in_place.y_stride), apart.result());
  }
}

TEST(GpuProduct, InvariantChunksAgainstDouble) {
  WEFT_NEEDS_GPU();
  for (size_t n_chunks : {2, 4, 8})
    for (size_t chunk : {16, 24, 48, 64, 112, 600})
      for (size_t tokens : {1, 9, 70})
        expect_near_double({tokens, 130, n_chunks * chunk, DType::bf16, GpuProduct::kPartial, false,
                            false, n_chunks, true});
}

// Rows of a shard and tokens of a batch have the bits that they have in the whole.
void expect_bits_of_the_whole(const Case& c) {
  Problem p(c);
  gpu_product(p.args(), nullptr);
  const std::vector<float> want = p.result();
  for (size_t tokens : {1, 2, 3, 9, 40, 64})
    for (size_t rows : {8, 130})
      for (size_t token : {0, 67}) {
        p.y.upload();
        GpuProduct a = p.args();
        const size_t row = c.n - rows;
        a.x = p.x.in(token * p.x_stride);
        a.w = p.w.in(row * c.k);
        a.bias = p.bias.in(row);
        a.tokens = tokens;
        a.n = rows;
        gpu_product(a, nullptr);
        const std::vector<float> got = p.y.fetch().rows(tokens, rows, p.y_stride);
        for (size_t t = 0; t < tokens; ++t)
          for (size_t r = 0; r < rows; ++r)
            ASSERT_EQ(got[t * rows + r], want[(token + t) * c.n + row + r])
                << c.text() << ": " << tokens << " tokens from " << token << ", " << rows
                << " rows: " << t << ", " << r;
      }
}

TEST(GpuProduct, InvariantBitsDoNotDependOnNeighbours) {
  WEFT_NEEDS_GPU();
  for (DType dtype : test::kFloatTypes)
    for (size_t n_chunks : {1, 4})
      for (bool norm : {false, true}) {
        Case c{150, 400, 1088, dtype, GpuProduct::kStore, true, norm, n_chunks, true};
        expect_bits_of_the_whole(c);
      }
}

// Two ranks' partial sums over half the chunks each are the two halves of the tree.
TEST(GpuProduct, ChunksOfTwoRanksAddUpToTheSameBits) {
  WEFT_NEEDS_GPU();
  const Case c{5, 70, 8 * 48, DType::bf16, GpuProduct::kPartial, false, false, 8, true};
  Problem whole(c);
  gpu_product(whole.args(), nullptr);
  const std::vector<float> want = whole.result();
  const size_t half = c.k / 2;
  std::vector<float> sum(want.size(), 0);
  for (size_t rank : {0, 1}) {
    Tensor w(c.dtype, c.n * half);
    for (size_t r = 0; r < c.n; ++r)
      std::memcpy(w.out().as<uint16_t>() + r * half,
                  whole.w.uploaded().in().as<uint16_t>() + r * c.k + rank * half, half * 2);
    GpuTensor shard(w);
    Problem part(c);
    GpuProduct a = part.args();
    a.x = part.x.in(rank * half);
    a.w = shard.in();
    a.k = half;
    a.n_chunks = 4;
    gpu_product(a, nullptr);
    const std::vector<float> got = part.result();
    for (size_t i = 0; i < sum.size(); ++i) sum[i] = rank == 0 ? got[i] : sum[i] + got[i];
  }
  EXPECT_EQ(sum, want);
}

// Tiles and the ring's size are only ways to the same sums; halves of k are other sums.
TEST(GpuProduct, EveryCut) {
  WEFT_NEEDS_GPU();
  for (size_t tokens : {5, 30, 60, 128})
    for (size_t n : {700, 9000}) {
      Problem p({tokens, n, 712});
      const std::vector<float> want = reference(p);
      std::vector<float> first;
      for (size_t tiles : {1, 2, 4})
        for (size_t parts : {1, 2})
          for (size_t subtiles : {1, 3}) {
            p.y.upload();
            StreamWish wish;
            wish.tiles_at_once = tiles;
            wish.parts = parts;
            wish.subtiles = subtiles;
            const GpuProduct a = p.args();
            const StreamCut cut = stream_cut(a, wish, 132);
            gpu_product_stream(a, cut, nullptr);
            const std::vector<float> got = p.result();
            if (first.empty()) first = got;
            const std::string text = fmt::format("{} tiles {} of {} rows parts {}", p.c.text(),
                                                 tiles, cut.tile_rows, cut.parts);
            EXPECT_TRUE(test::near(got, want, p.c.dtype, text));
            if (cut.parts == 1) {
              EXPECT_EQ(got, first) << text;
            }
          }
    }
}

// Rows that a first product scales, and what a second one makes of them, beside the exact norm.
void expect_deferred_norm(size_t tokens, size_t n, size_t k, GpuProduct::Epilogue epilogue) {
  Problem first({tokens, n, k, DType::bf16, GpuProduct::kAddResidual, true});
  Problem second({tokens, 66, n, DType::bf16, epilogue, true});
  second.x_stride = n;
  const std::string text = first.c.text() + ", then " + second.c.text();
  const GpuTensor weight = GpuTensor::random(DType::bf16, n, 6);
  GpuTensor scaled(DType::bf16, tokens * n);
  GpuTensor squares(DType::f32, kMaxNormParts * kStreamTokens);
  GpuProduct a = first.args();
  const size_t parts = gpu_product_norm_parts(a);
  ASSERT_GT(parts, 0u);
  a.defer = {weight.in(), scaled.out(), squares.out().as<float>()};
  a.dependent_launch = true;
  gpu_product(a, nullptr);
  GpuProduct b = second.args();
  b.x = scaled.in();
  b.x_squares = squares.in().as<float>();
  b.x_parts = parts;
  b.eps = 1e-3f;
  b.dependent_launch = true;
  gpu_product(b, nullptr);
  EXPECT_TRUE(test::near(first.result(), reference(first), DType::bf16, text));

  const std::vector<float> y = first.result(), w = weight.uploaded().values();
  std::vector<float> rows(tokens * n);
  for (size_t i = 0; i < rows.size(); ++i) rows[i] = y[i] * w[i % n];
  Tensor rounded(DType::bf16, rows.size());
  convert(rows.data(), DType::f32, rounded.out().data, DType::bf16, rows.size());
  ASSERT_EQ(scaled.fetch().values(), rounded.values()) << text;

  rows = rounded.values();
  for (size_t t = 0; t < tokens; ++t) {
    double sum = 0;
    for (size_t i = 0; i < n; ++i) sum += double{y[t * n + i]} * y[t * n + i];
    const double rms = std::sqrt(sum / static_cast<double>(n) + 1e-3);
    for (size_t i = 0; i < n; ++i) rows[t * n + i] = static_cast<float>(rows[t * n + i] / rms);
  }
  Tensor x(DType::f32, rows.size());
  std::copy(rows.begin(), rows.end(), x.out().as<float>());
  EXPECT_TRUE(test::near(second.result(), reference_of(second, x), DType::bf16, text));
}

TEST(GpuProduct, DeferredNormAgainstDouble) {
  WEFT_NEEDS_GPU();
  for (size_t tokens : {1, 2, 7, 8, 9, 16, 17, 31, 32})
    for (size_t n : {72, 520, 2056})
      for (size_t k : {136, 2056})
        for (GpuProduct::Epilogue epilogue :
             {GpuProduct::kSwiglu, GpuProduct::kStore, GpuProduct::kAddResidual})
          expect_deferred_norm(tokens, n, k, epilogue);
}

TEST(GpuProduct, NormsThatAreNotDeferred) {
  WEFT_NEEDS_GPU();
  const auto parts = [](const Case& c) {
    Problem p(c);
    return gpu_product_norm_parts(p.args());
  };
  const Case c{8, 64, 64, DType::bf16, GpuProduct::kAddResidual};
  EXPECT_GT(parts(c), 0u);
  Case many = c, half = c, store = c, fixed = c, odd = c;
  many.tokens = kStreamTokens + 1;
  half.dtype = DType::f16;
  store.epilogue = GpuProduct::kStore;
  fixed.invariant = true;
  odd.k = 65;
  for (const Case& other : {many, half, store, fixed, odd})
    EXPECT_EQ(parts(other), 0u) << other.text();
}

// A chain in which each product reads what the one before wrote, with and without overlap.
TEST(GpuProduct, OverlappedChainHasTheSameBits) {
  WEFT_NEEDS_GPU();
  for (size_t tokens : {1, 2, 3, 20, 64}) {
    std::vector<float> first;
    for (bool dependent : {false, true}) {
      Problem p({tokens, 2048, 2048, DType::bf16, GpuProduct::kAddResidual});
      const size_t width = 2048;
      GpuTensor ping = GpuTensor::random(DType::bf16, tokens * width, 6);
      GpuTensor pong = GpuTensor::random(DType::bf16, tokens * width, 7);
      GpuProduct a = p.args();
      a.norm_weight = p.norm.in();
      a.x_stride = a.y_stride = width;
      a.dependent_launch = dependent;
      for (int i = 0; i < 40; ++i) {
        a.x = i % 2 == 0 ? ping.in() : pong.in();
        a.y = i % 2 == 0 ? pong.out() : ping.out();
        a.residual = a.y;
        gpu_product(a, nullptr);
      }
      const std::vector<float> got = ping.fetch().values();
      if (first.empty()) first = got;
      EXPECT_EQ(got, first) << tokens << " tokens";
      EXPECT_TRUE(std::isfinite(got[0]));
    }
  }
}

TEST(GpuProduct, ManyTokensByCublas) {
  WEFT_NEEDS_GPU();
  GpuBytes workspace(kCublasWorkspaceBytes);
  std::unique_ptr<CublasProducts> cublas, other;
  try {
    cublas = std::make_unique<CublasProducts>(workspace.data());
    other = std::make_unique<CublasProducts>(workspace.data());
  } catch (const Error& error) {
    GTEST_SKIP() << error.what();
  }
  for (DType dtype : {DType::bf16, DType::f16})
    for (GpuProduct::Epilogue epilogue : kEpilogues)
      for (bool bias : {false, true}) {
        const Case c{130, 264, 136, dtype, epilogue, bias};
        Problem p(c);
        GpuProduct a = p.args();
        GpuProduct measured = a;
        measured.epilogue = epilogue == GpuProduct::kSwiglu ? GpuProduct::kStore : epilogue;
        Tensor scratch(c.y_dtype(), c.tokens * (c.n + 3));
        GpuTensor scratch_y(scratch);
        measured.y = scratch_y.out();
        measured.y_stride = c.n + 3;
        measured.tokens = 200;
        Problem larger({200, c.n, c.k, dtype});
        if (epilogue == GpuProduct::kStore) {
          measured.x = larger.x.in();
          measured.y = larger.y.out();
        } else {
          measured.tokens = c.tokens;
        }
        cublas->measure(measured, nullptr);
        other->adopt(cublas->serialise());
        a.plan = other->plan(a);
        ASSERT_NE(a.plan, nullptr) << c.text();
        gpu_product(a, nullptr);
        EXPECT_TRUE(test::near(p.result(), reference(p), judged_as(c), c.text()));
        EXPECT_TRUE(p.y.fetch().gaps_untouched(c.tokens, c.y_width(), p.y_stride)) << c.text();
      }
  EXPECT_THROW(other->adopt("short"), Error);
}

TEST(GpuProduct, BrokenPromisesThrow) {
  GpuProduct a;
  a.tokens = 1;
  a.n = a.y_stride = 3;
  a.k = a.x_stride = 12;
  a.n_chunks = 3;
  EXPECT_THROW(gpu_product(a, nullptr), std::logic_error);
  a.n_chunks = 1;
  a.epilogue = GpuProduct::kSwiglu;
  EXPECT_THROW(gpu_product(a, nullptr), std::logic_error);
}

}  // namespace
}  // namespace weft::kernels
