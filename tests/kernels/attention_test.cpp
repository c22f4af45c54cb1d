// Cache writes, and attention against double and against itself: a row's bits must not depend on
// the chunk, the batch, the tile, the threads or the instruction set that it was computed with.
#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <cmath>

#include "kernels/cpu_kernels.h"
#include "runtime/base/error.h"
#include "tests/kernels/paged_cache.h"
#include "tests/support/tolerance.h"

namespace weft::kernels {
namespace {

using test::PagedCache;
using test::Rows;
using test::Tensor;

struct Heads {
  size_t n_heads, n_kv_heads, head_dim;
  size_t window = 0;
  DType q = DType::f32, key = DType::f32, value = DType::f32;
};

// Sequences with all their queries, keys and values; batches are cut from them.
class Model {
 public:
  Model(const Heads& heads, std::vector<size_t> lengths)
      : h_(heads),
        lengths_(std::move(lengths)),
        positions_(*std::max_element(lengths_.begin(), lengths_.end())),
        q_width_(h_.n_heads * h_.head_dim),
        cache_(h_.key, h_.value, h_.n_kv_heads, h_.head_dim, lengths_.size(), positions_),
        q_(Tensor::random(h_.q, lengths_.size() * positions_ * q_width_, 1)) {
    for (size_t s = 0; s < lengths_.size(); ++s) append(s);
  }

  PagedCache& cache() { return cache_; }
  const Heads& heads() const { return h_; }

  // Rows [begin, end) of a sequence join the batch.
  void add(size_t sequence, size_t begin, size_t end) {
    rows_.add(static_cast<int32_t>(sequence), begin, end);
  }

  // [tokens, n_heads · head_dim] of the batch, which is emptied. cpu null: the oracle.
  std::vector<float> run(const CpuKernels* cpu, Stream& stream) {
    const size_t tokens = rows_.positions.size(), stride = q_width_ + 11;
    Tensor q(h_.q, tokens * stride), out(DType::f32, tokens * q_width_);
    for (size_t t = 0; t < tokens; ++t) {
      const size_t row = static_cast<size_t>(rows_.sequence[t]) * positions_ +
                         static_cast<size_t>(rows_.positions[t]);
      convert(q_.in(row * q_width_).data, h_.q, q.out(t * stride).data, h_.q, q_width_);
    }
    std::vector<float> workspace(attention_workspace_floats(stream.pool().n_threads(), h_.n_heads,
                                                            h_.n_kv_heads, h_.head_dim),
                                 NAN);
    Attention a;
    a.q = q.in();
    a.cache = cache_.layer(1);
    a.rows = rows_.paged(cache_);
    a.out = out.out();
    a.n_heads = h_.n_heads;
    a.n_kv_heads = h_.n_kv_heads;
    a.head_dim = h_.head_dim;
    a.q_stride = stride;
    a.window = h_.window;
    a.scale = 1 / std::sqrt(static_cast<float>(h_.head_dim));
    a.workspace = workspace.data();
    if (cpu != nullptr)
      attention_with(*cpu, a, stream);
    else
      attention<double>(a, stream);
    rows_ = {};
    return out.values();
  }

 private:
  void append(size_t sequence) {
    Rows rows;
    rows.add(static_cast<int32_t>(sequence), 0, lengths_[sequence]);
    const size_t width = h_.n_kv_heads * h_.head_dim, stride = width + 3;
    const auto seed = static_cast<uint32_t>(2 * sequence);
    const Tensor k = Tensor::random(h_.q, lengths_[sequence] * stride, 100 + seed);
    const Tensor v = Tensor::random(h_.q, lengths_[sequence] * stride, 101 + seed);
    KvAppend a;
    a.k = k.in();
    a.v = v.in();
    a.cache = cache_.layer(1);
    a.rows = rows.paged(cache_);
    a.n_kv_heads = h_.n_kv_heads;
    a.head_dim = h_.head_dim;
    a.stride = stride;
    ThreadPool pool(2);
    Stream stream(pool);
    kv_append(a, stream);
  }

  Heads h_;
  std::vector<size_t> lengths_;
  size_t positions_;
  size_t q_width_;
  PagedCache cache_;
  Tensor q_;
  Rows rows_;
};

TEST(KvAppend, WritesItsTokensAndNothingElse) {
  ThreadPool pool(2);
  Stream stream(pool);
  const size_t heads = 3, dim = 6, stride = 20, tokens = 130;
  PagedCache cache(DType::bf16, DType::f16, heads, dim, 2, tokens);
  const std::vector<std::byte> before = cache.bytes();
  const Tensor k = Tensor::random(DType::f32, tokens * stride, 1);
  const Tensor v = Tensor::random(DType::f32, tokens * stride, 2);
  Rows rows;
  rows.add(1, 1, 130);
  KvAppend a;
  a.k = k.in();
  a.v = v.in();
  a.cache = cache.layer(0);
  a.rows = rows.paged(cache);
  a.n_kv_heads = heads;
  a.head_dim = dim;
  a.stride = stride;
  kv_append(a, stream);

  const std::vector<float> keys = k.values(), values = v.values();
  size_t changed = 0;
  for (size_t t = 0; t < rows.positions.size(); ++t)
    for (size_t g = 0; g < heads; ++g)
      for (size_t i = 0; i < dim; ++i) {
        const auto p = static_cast<size_t>(rows.positions[t]);
        const int64_t block = cache.table()[cache.columns() + p / 64];
        const std::byte* base = a.cache.base + block * a.cache.block_stride;
        const size_t element = (g * 64 + p % 64) * dim + i;
        const auto key = reinterpret_cast<const bf16*>(base)[element];
        const auto value = reinterpret_cast<const f16*>(base + a.cache.value_offset)[element];
        EXPECT_EQ(key.bits, round_bf16(keys[t * stride + g * dim + i]).bits);
        EXPECT_EQ(value.bits, round_f16(values[t * stride + g * dim + i]).bits);
        changed += 4;
      }
  size_t differing = 0;
  for (size_t i = 0; i < before.size(); ++i) differing += before[i] != cache.bytes()[i];
  EXPECT_LE(differing, changed);  // a written byte may be 0xff too
  EXPECT_GE(differing, changed * 9 / 10);
}

TEST(KvAppend, NegativeBlocksAndShortTablesThrow) {
  ThreadPool pool(1);
  Stream stream(pool);
  Model model({1, 1, 8}, {70});
  model.cache().table()[1] = -1;
  model.add(0, 69, 70);
  EXPECT_THROW(model.run(&best_cpu_kernels(), stream), std::logic_error);
}

TEST(Attention, EveryShapeAgainstDouble) {
  ThreadPool pool(2);
  Stream stream(pool);
  for (size_t group : {1, 4, 7})
    for (size_t n_kv_heads : {1, 3})
      for (size_t head_dim : {2, 8, 16, 80, 128}) {
        Model model({group * n_kv_heads, n_kv_heads, head_dim}, {1, 31, 100});
        const auto batch = [&] {
          model.add(2, 60, 100);
          model.add(0, 0, 1);
          model.add(1, 0, 31);
          model.add(2, 5, 6);
        };
        batch();
        const std::vector<float> want = model.run(nullptr, stream);
        batch();
        EXPECT_TRUE(
            test::near(model.run(&best_cpu_kernels(), stream), want, DType::f32,
                       fmt::format("heads {}/{} x {}", group * n_kv_heads, n_kv_heads, head_dim)));
      }
}

TEST(Attention, EveryTypeAgainstDouble) {
  ThreadPool pool(2);
  Stream stream(pool);
  for (DType q : test::kFloatTypes)
    for (DType key : test::kFloatTypes)
      for (DType value : test::kFloatTypes) {
        Model model({4, 2, 33 * 2, 0, q, key, value}, {90});
        model.add(0, 0, 90);
        const std::vector<float> want = model.run(nullptr, stream);
        model.add(0, 0, 90);
        EXPECT_TRUE(test::near(model.run(&best_cpu_kernels(), stream), want, DType::f32,
                               test::name(q) + " " + test::name(key) + " " + test::name(value)));
      }
}

TEST(Attention, SpansAndWindowsAgainstDouble) {
  ThreadPool pool(2);
  Stream stream(pool);
  for (size_t window : {0, 1, 30, 64, 512, 700}) {
    Model model({4, 2, 16, window}, {1100});
    for (size_t begin : {0, 500, 1000}) {
      model.add(0, begin, begin + 70);
      const std::vector<float> want = model.run(nullptr, stream);
      model.add(0, begin, begin + 70);
      EXPECT_TRUE(test::near(model.run(&best_cpu_kernels(), stream), want, DType::f32,
                             fmt::format("window {} from {}", window, begin)));
    }
  }
}

// Blocks that the window has left may be gone: their ids are not looked at.
TEST(Attention, FreedBlocksBehindTheWindowAreNotRead) {
  ThreadPool pool(1);
  Stream stream(pool);
  Model model({2, 1, 8, 50}, {300});
  model.add(0, 260, 300);
  const std::vector<float> want = model.run(&best_cpu_kernels(), stream);
  for (size_t column : {0, 1, 2}) model.cache().table()[column] = -1;
  model.add(0, 260, 300);
  EXPECT_EQ(model.run(&best_cpu_kernels(), stream), want);
}

// Sequence 0 in chunks, other sequences' decode rows and chunks between them.
std::vector<float> in_chunks(Model& model, size_t length, size_t chunk, bool mixed,
                             const CpuKernels& cpu, Stream& stream) {
  const size_t width = model.heads().n_heads * model.heads().head_dim;
  std::vector<float> all;
  for (size_t begin = 0; begin < length; begin += chunk) {
    const size_t end = std::min(length, begin + chunk);
    if (mixed) {
      model.add(1, 40, 43);
      model.add(2, 599, 600);
    }
    model.add(0, begin, end);
    if (mixed) model.add(1, 7, 8);
    const std::vector<float> out = model.run(&cpu, stream);
    const auto first = out.begin() + static_cast<std::ptrdiff_t>(mixed ? 4 * width : 0);
    all.insert(all.end(), first, first + static_cast<std::ptrdiff_t>((end - begin) * width));
  }
  return all;
}

void expect_same_bits_everywhere(const Heads& heads) {
  const size_t length = 730;
  Model model(heads, {length, 50, 600});
  ThreadPool one(1);
  Stream alone(one);
  const std::vector<float> want =
      in_chunks(model, length, length, false, best_cpu_kernels(), alone);
  for (float value : want) ASSERT_FALSE(std::isnan(value));
  for (size_t n_threads : {1, 2, 3}) {
    ThreadPool pool(n_threads);
    Stream stream(pool);
    for (size_t chunk : {1, 37, 64, 512, 730}) {
      const bool mixed = n_threads != 2;
      EXPECT_TRUE(in_chunks(model, length, chunk, mixed, best_cpu_kernels(), stream) == want)
          << "chunks of " << chunk << ", " << n_threads << " threads, window " << heads.window;
    }
  }
  for (const CpuKernels* cpu : usable_cpu_kernels())
    EXPECT_TRUE(in_chunks(model, length, 200, true, *cpu, alone) == want) << cpu->name;
}

TEST(Attention, BitsDoNotDependOnChunksBatchesOrThreads) {
  expect_same_bits_everywhere({4, 1, 32, 0, DType::bf16, DType::bf16, DType::bf16});
  expect_same_bits_everywhere({2, 2, 16, 0, DType::f32, DType::f16, DType::bf16});
  expect_same_bits_everywhere({7, 1, 10, 0, DType::bf16, DType::f32, DType::f32});
}

TEST(Attention, BitsDoNotDependOnChunksWithAWindow) {
  expect_same_bits_everywhere({4, 2, 16, 100, DType::bf16, DType::bf16, DType::bf16});
  expect_same_bits_everywhere({1, 1, 8, 600, DType::f32, DType::f32, DType::f32});
  expect_same_bits_everywhere({4, 1, 8, 3, DType::f32, DType::bf16, DType::bf16});
}

TEST(Attention, OneVisiblePositionIsItsValue) {
  ThreadPool pool(1);
  Stream stream(pool);
  Model model({3, 1, 8, 1, DType::f32, DType::f32, DType::f32}, {130});
  model.add(0, 129, 130);
  const std::vector<float> out = model.run(&best_cpu_kernels(), stream);
  const KvLayer layer = model.cache().layer(1);
  const int64_t block = model.cache().table()[2];
  const auto* value =
      reinterpret_cast<const float*>(layer.base + block * layer.block_stride + layer.value_offset) +
      8;
  for (size_t i = 0; i < out.size(); ++i) EXPECT_EQ(out[i], value[i % 8]);
}

}  // namespace
}  // namespace weft::kernels
