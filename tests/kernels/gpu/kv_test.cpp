// QK norm, rotation and cache writes on the GPU against the CPU's three operations.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/gpu_kv.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "runtime/base/error.h"
#include "tests/kernels/gpu/gpu_array.h"
#include "tests/kernels/paged_cache.h"
#include "tests/support/tolerance.h"

namespace weft::kernels {
namespace {

using test::GpuArray;
using test::PagedCache;
using test::Rows;
using test::Tensor;

struct Shape {
  DType dtype, key, value;
  size_t n_heads, n_kv_heads, head_dim;
  bool norm;
};

struct Result {
  Tensor qkv;
  std::vector<std::byte> cache;
};

class Post {
 public:
  explicit Post(const Shape& shape)
      : s_(shape),
        width_((s_.n_heads + 2 * s_.n_kv_heads) * s_.head_dim),
        stride_(width_ + 6),
        cache_(s_.key, s_.value, s_.n_kv_heads, s_.head_dim, 2, 200),
        q_norm_(Tensor::random(s_.dtype, s_.head_dim, 3)),
        k_norm_(Tensor::random(s_.dtype, s_.head_dim, 4)),
        table_(200 * s_.head_dim) {
    rows_.add(1, 60, 130);
    rows_.positions.push_back(-1);
    rows_.sequence.push_back(0);
    rows_.add(0, 199, 200);
    for (size_t i = 0; i < table_.size(); i += 2) {
      const double angle = 0.37 * static_cast<double>(i);
      table_[i] = static_cast<float>(std::cos(angle));
      table_[i + 1] = static_cast<float>(std::sin(angle));
    }
  }

  size_t tokens() const { return rows_.positions.size(); }
  size_t width() const { return width_; }
  size_t stride() const { return stride_; }

  Result gpu() const {
    Tensor qkv = input();
    const GpuArray<std::byte> x(qkv.bytes()), q_norm(q_norm_.bytes()), k_norm(k_norm_.bytes()),
        cache(cache_.bytes());
    const GpuArray<float> table(table_);
    const GpuArray<int32_t> positions(rows_.positions), sequence(rows_.sequence),
        blocks(cache_.table());
    GpuQkvPost a;
    a.qkv = {x.data(), s_.dtype};
    if (s_.norm) a.q_norm = {q_norm.data(), s_.dtype};
    if (s_.norm) a.k_norm = {k_norm.data(), s_.dtype};
    a.rope = table.data();
    PagedCache layout = cache_;
    a.cache = layout.layer(1);
    a.cache.base = cache.data() + (a.cache.base - layout.bytes().data());
    a.rows = {positions.data(), sequence.data(), blocks.data(), cache_.columns(), tokens()};
    a.n_heads = s_.n_heads;
    a.n_kv_heads = s_.n_kv_heads;
    a.head_dim = s_.head_dim;
    a.stride = stride_;
    gpu_qkv_post(a, nullptr);
    check(cudaDeviceSynchronize(), "qkv post");
    const std::vector<std::byte> bytes = x.get();
    std::copy(bytes.begin(), bytes.end(), static_cast<std::byte*>(qkv.out().data));
    return {qkv, cache.get()};
  }

  Result cpu() {
    Tensor qkv = input();
    ThreadPool pool(1);
    Stream stream(pool);
    PagedCache cache = cache_;
    for (size_t t = 0; t < tokens(); ++t) {
      if (rows_.positions[t] < 0) continue;
      const size_t k = t * stride_ + s_.n_heads * s_.head_dim;
      if (s_.norm) {
        normalise(qkv, t * stride_, s_.n_heads, q_norm_, stream);
        normalise(qkv, k, s_.n_kv_heads, k_norm_, stream);
      }
      Rope rope_args;
      rope_args.x = qkv.out(t * stride_);
      rope_args.table = table_.data();
      rope_args.positions = rows_.positions.data() + t;
      rope_args.tokens = 1;
      rope_args.n_heads = s_.n_heads + s_.n_kv_heads;
      rope_args.head_dim = s_.head_dim;
      rope_args.stride = stride_;
      rope(rope_args, stream);
      KvAppend append;
      append.k = qkv.in(k);
      append.v = qkv.in(k + s_.n_kv_heads * s_.head_dim);
      append.cache = cache.layer(1);
      append.rows = rows_.paged(cache);
      append.rows.positions += t;
      append.rows.sequence += t;
      append.rows.tokens = 1;
      append.n_kv_heads = s_.n_kv_heads;
      append.head_dim = s_.head_dim;
      append.stride = stride_;
      kv_append(append, stream);
    }
    return {qkv, cache.bytes()};
  }

 private:
  // Rows of padding and the gaps between rows are NaN.
  Tensor input() const {
    Tensor qkv(s_.dtype, tokens() * stride_);
    const Tensor values = Tensor::random(s_.dtype, tokens() * width_, 5);
    for (size_t t = 0; t < tokens(); ++t)
      if (rows_.positions[t] >= 0)
        convert(values.in(t * width_).data, s_.dtype, qkv.out(t * stride_).data, s_.dtype, width_);
    return qkv;
  }

  void normalise(Tensor& qkv, size_t from, size_t heads, const Tensor& weight, Stream& stream) {
    RmsNorm a;
    a.x = qkv.in(from);
    a.weight = weight.in();
    a.y = qkv.out(from);
    a.tokens = 1;
    a.groups = heads;
    a.width = s_.head_dim;
    a.x_stride = a.y_stride = stride_;
    rms_norm(a, stream);
  }

  Shape s_;
  size_t width_;
  size_t stride_;
  PagedCache cache_;
  Tensor q_norm_;
  Tensor k_norm_;
  std::vector<float> table_;
  Rows rows_;
};

// Without a norm nothing but single operations happens: the same bits, everywhere in the cache.
TEST(GpuQkvPost, RotationAndCacheHaveTheBitsOfTheCpu) {
  WEFT_NEEDS_A_GPU();
  for (DType dtype : test::kFloatTypes)
    for (DType plane : test::kFloatTypes)
      for (size_t head_dim : {2, 6, 16, 80, 128, 256}) {
        Post post({dtype, plane, DType::bf16, 7, 1, head_dim, false});
        const Result got = post.gpu(), want = post.cpu();
        const size_t q_width = 7 * head_dim;
        const auto q = [&](const Result& r) {
          const std::vector<float> rows = r.qkv.rows(post.tokens(), q_width, post.stride());
          std::vector<float> numbers;  // NaN of padding equals nothing
          for (float x : rows) numbers.push_back(std::isnan(x) ? 12345.0f : x);
          return numbers;
        };
        EXPECT_EQ(q(got), q(want)) << test::name(dtype) << " x " << head_dim;
        EXPECT_TRUE(got.cache == want.cache)
            << test::name(dtype) << " to " << test::name(plane) << " x " << head_dim;
        EXPECT_TRUE(got.qkv.gaps_untouched(post.tokens(), post.width(), post.stride()));
      }
}

TEST(GpuQkvPost, NormAgainstTheCpu) {
  WEFT_NEEDS_A_GPU();
  for (DType dtype : test::kFloatTypes)
    for (size_t head_dim : {6, 64, 128}) {
      Post post({dtype, dtype, dtype, 5, 3, head_dim, true});
      const Result got = post.gpu(), want = post.cpu();
      const auto rows = [&](const Result& r, size_t first, size_t n) {
        std::vector<float> all = r.qkv.values(), picked;
        for (size_t t = first; t < first + n; ++t)
          picked.insert(
              picked.end(), all.begin() + static_cast<std::ptrdiff_t>(t * post.stride()),
              all.begin() + static_cast<std::ptrdiff_t>(t * post.stride() + 5 * head_dim));
        return picked;
      };
      EXPECT_TRUE(
          test::near(rows(got, 0, 70), rows(want, 0, 70), dtype, fmt::format("q x {}", head_dim)));
      // Keys, through the cache: as many elements as both wrote, near each other.
      const size_t n = got.cache.size() / dtype_bytes(dtype);
      std::vector<float> a(n), b(n);
      convert(got.cache.data(), dtype, a.data(), DType::f32, n);
      convert(want.cache.data(), dtype, b.data(), DType::f32, n);
      std::vector<float> kept_a, kept_b;
      for (size_t i = 0; i < n; ++i) {
        EXPECT_EQ(std::isnan(a[i]), std::isnan(b[i]));
        if (std::isnan(a[i])) continue;
        kept_a.push_back(a[i]);
        kept_b.push_back(b[i]);
      }
      EXPECT_TRUE(test::near(kept_a, kept_b, dtype, fmt::format("cache x {}", head_dim)));
    }
}

}  // namespace
}  // namespace weft::kernels
