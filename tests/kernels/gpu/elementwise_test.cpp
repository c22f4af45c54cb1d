// The GPU's RMSNorm, residual addition, SwiGLU and embedding against their CPU twins.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/embedding.h"
#include "kernels/gpu_embedding.h"
#include "kernels/gpu_residual_add.h"
#include "kernels/gpu_rms_norm.h"
#include "kernels/gpu_swiglu.h"
#include "kernels/residual_add.h"
#include "kernels/rms_norm.h"
#include "runtime/base/error.h"
#include "tests/kernels/gpu/gpu_tensors.h"
#include "tests/support/tolerance.h"

namespace weft::kernels {
namespace {

using test::GpuBytes;
using test::GpuTensor;
using test::Tensor;

Tensor normed(const Tensor& x, const Tensor& weight, size_t tokens, size_t width, size_t stride) {
  ThreadPool pool(1);
  Stream stream(pool);
  Tensor y(x.dtype(), tokens * stride);
  RmsNorm a;
  a.x = x.in();
  a.weight = weight.in();
  a.y = y.out();
  a.tokens = tokens;
  a.width = width;
  a.x_stride = a.y_stride = stride;
  rms_norm<double>(a, stream);
  return y;
}

TEST(GpuRmsNorm, AgainstDouble) {
  WEFT_NEEDS_GPU();
  for (DType dtype : test::kFloatTypes)
    for (size_t width : {1, 31, 64, 1000, 7168, 8192, 10240})
      for (size_t pad : {0, 7, 8})
        for (size_t tokens : {1, 33}) {
          const size_t stride = width + pad;
          const GpuTensor x = GpuTensor::random(dtype, tokens * stride, 1);
          const GpuTensor weight = GpuTensor::random(dtype, width, 2);
          GpuTensor y(dtype, tokens * stride);
          GpuRmsNorm a;
          a.x = x.in();
          a.weight = weight.in();
          a.y = y.out();
          a.tokens = tokens;
          a.width = width;
          a.x_stride = a.y_stride = stride;
          gpu_rms_norm(a, nullptr);
          const std::string shape = fmt::format("[{}, {}] stride {}", tokens, width, stride);
          const Tensor want = normed(x.uploaded(), weight.uploaded(), tokens, width, stride);
          EXPECT_TRUE(test::near(y.fetch().rows(tokens, width, stride),
                                 want.rows(tokens, width, stride), dtype, shape));
          EXPECT_TRUE(y.fetch().gaps_untouched(tokens, width, stride)) << shape;
        }
}

TEST(GpuRmsNorm, InPlaceGivesTheSameBits) {
  WEFT_NEEDS_GPU();
  for (size_t width : {50, 4096}) {
    GpuTensor x = GpuTensor::random(DType::bf16, 3 * width, 1);
    const GpuTensor weight = GpuTensor::random(DType::bf16, width, 2);
    GpuTensor y(DType::bf16, 3 * width);
    GpuRmsNorm a;
    a.x = x.in();
    a.weight = weight.in();
    a.y = y.out();
    a.tokens = 3;
    a.width = a.x_stride = a.y_stride = width;
    gpu_rms_norm(a, nullptr);
    a.y = x.out();
    gpu_rms_norm(a, nullptr);
    EXPECT_EQ(x.fetch().bytes(), y.fetch().bytes());
  }
}

TEST(GpuResidualAdd, RoundsOnceAndNormsWhatItWrote) {
  WEFT_NEEDS_GPU();
  ThreadPool pool(1);
  Stream stream(pool);
  for (DType dtype : test::kFloatTypes)
    for (bool with_bias : {false, true})
      for (size_t hidden : {1, 33, 64, 7168}) {
        const size_t tokens = 5;
        const GpuTensor partial = GpuTensor::random(DType::f32, tokens * hidden, 1);
        const GpuTensor bias = GpuTensor::random(DType::bf16, hidden, 2);
        const GpuTensor weight = GpuTensor::random(dtype, hidden, 4);
        GpuTensor residual = GpuTensor::random(dtype, tokens * hidden, 3);
        GpuTensor norm(dtype, tokens * hidden);
        GpuResidualAdd a;
        a.partial = partial.in().as<float>();
        if (with_bias) a.bias = bias.in();
        a.residual = residual.out();
        a.norm_weight = weight.in();
        a.normed = norm.out();
        a.tokens = tokens;
        a.hidden = hidden;
        gpu_residual_add(a, nullptr);

        Tensor want = residual.uploaded();
        ResidualAdd twin;
        twin.partial = partial.uploaded().in().as<float>();
        if (with_bias) twin.bias = bias.uploaded().in();
        twin.residual = want.out();
        twin.tokens = tokens;
        twin.hidden = hidden;
        residual_add(twin, stream);
        EXPECT_EQ(residual.fetch().bytes(), want.bytes()) << hidden;
        EXPECT_TRUE(test::near(norm.fetch().values(),
                               normed(want, weight.uploaded(), tokens, hidden, hidden).values(),
                               dtype, fmt::format("[{}, {}]", tokens, hidden)));
      }
}

TEST(GpuSwiGlu, AgainstDouble) {
  WEFT_NEEDS_GPU();
  for (DType dtype : test::kFloatTypes)
    for (size_t ffn : {1, 33, 64, 1000})
      for (size_t tokens : {1, 31}) {
        const GpuTensor gate_up = GpuTensor::random(dtype, tokens * 2 * ffn, 1, 3);
        const size_t stride = ffn + 8;
        GpuTensor out(dtype, tokens * stride);
        GpuSwiGlu a;
        a.gate_up = gate_up.in();
        a.out = out.out();
        a.tokens = tokens;
        a.ffn = ffn;
        a.out_stride = stride;
        gpu_swiglu(a, nullptr);
        const std::vector<float> pairs = gate_up.uploaded().values();
        std::vector<float> want;
        for (size_t i = 0; i < tokens * ffn; ++i) {
          const double gate = pairs[2 * i];
          want.push_back(static_cast<float>(gate / (1 + std::exp(-gate)) * pairs[2 * i + 1]));
        }
        const std::string shape = fmt::format("[{}, {}]", tokens, ffn);
        EXPECT_TRUE(test::near(out.fetch().rows(tokens, ffn, stride), want, dtype, shape));
        EXPECT_TRUE(out.fetch().gaps_untouched(tokens, ffn, stride)) << shape;
      }
}

TEST(GpuEmbedding, RowsOfAShardHaveTheBitsOfTheTwin) {
  WEFT_NEEDS_GPU();
  ThreadPool pool(1);
  Stream stream(pool);
  const std::vector<int32_t> ids{0, 5, 6, 9, 10, 31'999, -1, 7};
  GpuBytes device_ids(ids.size() * sizeof(int32_t));
  check(cudaMemcpy(device_ids.data(), ids.data(), device_ids.bytes(), cudaMemcpyHostToDevice),
        "cudaMemcpy");
  for (DType dtype : test::kFloatTypes)
    for (size_t hidden : {1, 33, 300}) {
      Tensor rows = Tensor::random(dtype, 5 * hidden, 1);
      std::vector<float> zeros(hidden, -0.0f);
      convert(zeros.data(), DType::f32, rows.out(hidden).data, dtype, hidden);
      const GpuTensor table(rows);
      GpuTensor y(dtype, ids.size() * hidden);
      Tensor want(dtype, ids.size() * hidden);
      GpuEmbedding a;
      a.table = table.in();
      a.ids = static_cast<const int32_t*>(device_ids.data());
      a.y = y.out();
      a.tokens = ids.size();
      a.hidden = hidden;
      a.shard_begin = 5;
      a.shard_rows = 5;
      gpu_embedding(a, nullptr);
      Embedding twin;
      twin.table = rows.in();
      twin.ids = ids.data();
      twin.y = want.out();
      twin.tokens = ids.size();
      twin.hidden = hidden;
      twin.shard_begin = 5;
      twin.shard_rows = 5;
      embedding(twin, stream);
      EXPECT_EQ(y.fetch().bytes(), want.bytes()) << hidden;
    }
}

}  // namespace
}  // namespace weft::kernels
