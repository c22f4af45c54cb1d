// Attention that rotates on its own, in decode with the append too, against the two kernels it
// stands for: the same bits, in what it returns and in the cache.
#include <gtest/gtest.h>

#include <cmath>

#include "kernels/gpu_attention.h"
#include "runtime/base/error.h"
#include "tests/kernels/gpu/gpu_array.h"
#include "tests/kernels/paged_cache.h"

namespace weft::kernels {
namespace {

using test::GpuArray;
using test::PagedCache;
using test::Rows;
using test::Tensor;

struct Heads {
  DType dtype;
  size_t n_heads, n_kv_heads, head_dim;
  size_t window = 0;

  std::string text() const {
    return fmt::format("{} heads {}/{} x {} window {}", dtype_name(dtype), n_heads, n_kv_heads,
                       head_dim, window);
  }
};

struct Result {
  std::vector<std::byte> out, cache;
  bool operator==(const Result&) const = default;
};

// One step of sequences of `lengths` positions: all but the newest are in the cache.
class Step {
 public:
  Step(const Heads& heads, const std::vector<size_t>& lengths, size_t newest = 1)
      : h_(heads),
        context_(*std::max_element(lengths.begin(), lengths.end())),
        stride_((h_.n_heads + 2 * h_.n_kv_heads) * h_.head_dim + (newest == 1 ? 6 : 8)),
        cache_(h_.dtype, h_.dtype, h_.n_kv_heads, h_.head_dim, lengths.size(), context_),
        table_(context_ * h_.head_dim) {
    for (size_t s = 0; s < lengths.size(); ++s) {
      const auto sequence = static_cast<int32_t>(s);
      Rows old;
      const size_t begin = lengths[s] - std::min(lengths[s], newest);
      old.add(sequence, 0, begin);
      append(old, static_cast<uint32_t>(s));
      rows_.add(sequence, begin, lengths[s]);
      if (newest > 1 || s % 3 > 0) continue;
      rows_.positions.push_back(-1);
      rows_.sequence.push_back(0);
    }
    qkv_ = Tensor::random(h_.dtype, rows_.positions.size() * stride_, 5);
    for (size_t i = 0; i < table_.size(); i += 2) {
      const double angle = 0.37 * static_cast<double>(i);
      table_[i] = static_cast<float>(std::cos(angle));
      table_[i + 1] = static_cast<float>(std::sin(angle));
    }
  }

  // Of single rows, by decode.
  Result run(bool fused, bool invariant) {
    return run_as(invariant, [&](GpuAttention& a, const float* rope, std::byte* qkv) {
      EXPECT_TRUE(gpu_attention_rotates(a));
      if (fused)
        a.rope = rope;
      else
        rotate(a, rope, qkv, false);
    });
  }

  // Of tiles.
  Result run_tiles(bool fused) {
    std::vector<int32_t> single(rows_.positions.size());
    std::vector<GpuTile> tiles(gpu_tiles_at_most(rows_.positions.size()));
    const GpuRowCounts counts = gpu_attention_rows(rows_.paged(cache_), single, tiles);
    const GpuArray<GpuTile> gpu_tiles(tiles);
    return run_as(false, [&](GpuAttention& a, const float* rope, std::byte* qkv) {
      a.tiles = gpu_tiles.data();
      a.n_tiles = counts.n_tiles;
      a.n_single = counts.n_single;
      EXPECT_TRUE(gpu_attention_rotates_tiles(a));
      if (fused) a.tile_rope = rope;
      rotate(a, rope, qkv, fused);
    });
  }

 private:
  // `prepare` says what rotates, and does what is not attention's.
  template <class Prepare>
  Result run_as(bool invariant, Prepare&& prepare) {
    const size_t tokens = rows_.positions.size();
    const Tensor poison(h_.dtype, tokens * h_.n_heads * h_.head_dim);
    const GpuArray<std::byte> qkv(qkv_.bytes()), out(poison.bytes()), cache(cache_.bytes());
    const GpuArray<float> rope(table_);
    const GpuArray<int32_t> positions(rows_.positions), sequence(rows_.sequence),
        table(cache_.table());
    const GpuArray<std::byte> workspace(
        gpu_attention_workspace_bytes(tokens, tokens * context_, h_.n_heads, h_.head_dim),
        std::byte{0xff});

    GpuAttention a;
    a.q = {qkv.data(), h_.dtype};
    a.cache = cache_.layer(1);
    a.cache.base = cache.data() + (a.cache.base - cache_.bytes().data());
    a.rows = {positions.data(), sequence.data(), table.data(), cache_.columns(), tokens};
    a.out = {out.data(), h_.dtype};
    a.n_single = tokens;
    a.max_context = context_;
    a.n_heads = h_.n_heads;
    a.n_kv_heads = h_.n_kv_heads;
    a.head_dim = h_.head_dim;
    a.q_stride = stride_;
    a.window = h_.window;
    a.scale = 1 / std::sqrt(static_cast<float>(h_.head_dim));
    a.invariant = invariant;
    a.dependent_launch = true;
    a.workspace = workspace.data();
    prepare(a, rope.data(), qkv.data());
    gpu_attention(a, nullptr);
    check(cudaDeviceSynchronize(), "attention");
    return {out.get(), cache.get()};
  }

  void rotate(const GpuAttention& a, const float* rope, std::byte* qkv, bool leaves_q) const {
    GpuQkvPost post;
    post.qkv = {qkv, h_.dtype};
    post.rope = rope;
    post.cache = a.cache;
    post.rows = a.rows;
    post.n_heads = h_.n_heads;
    post.n_kv_heads = h_.n_kv_heads;
    post.head_dim = h_.head_dim;
    post.stride = stride_;
    post.leaves_q = leaves_q;
    gpu_qkv_post(post, nullptr);
  }

  void append(const Rows& rows, uint32_t seed) {
    const size_t width = h_.n_kv_heads * h_.head_dim, n = rows.positions.size();
    if (n == 0) return;
    const Tensor k = Tensor::random(h_.dtype, n * width, 100 + 2 * seed);
    const Tensor v = Tensor::random(h_.dtype, n * width, 101 + 2 * seed);
    KvAppend a;
    a.k = k.in();
    a.v = v.in();
    a.cache = cache_.layer(1);
    a.rows = rows.paged(cache_);
    a.n_kv_heads = h_.n_kv_heads;
    a.head_dim = h_.head_dim;
    a.stride = width;
    ThreadPool pool(1);
    Stream stream(pool);
    kv_append(a, stream);
  }

  Heads h_;
  size_t context_;
  size_t stride_;
  PagedCache cache_;
  Rows rows_;
  Tensor qkv_{DType::f32, 0};
  std::vector<float> table_;
};

// Newest positions first and last in a step, a block and a part.
const std::vector<size_t> kLengths{1, 31, 32, 33, 64, 65, 511, 512, 513, 700, 1300};

TEST(GpuAttention, DecodeThatRotatesHasTheBitsOfTwoKernels) {
  WEFT_NEEDS_A_GPU();
  for (DType dtype : {DType::bf16, DType::f16})
    for (size_t head_dim : {64, 96, 128})
      for (size_t group : {1, 7, 8, 9, 20}) {
        const Heads heads{dtype, 2 * group, 2, head_dim};
        Step step(heads, kLengths);
        for (bool invariant : {false, true})
          EXPECT_TRUE(step.run(true, invariant) == step.run(false, invariant))
              << heads.text() << " invariant " << invariant;
      }
}

TEST(GpuAttention, DecodeThatRotatesWithWindowsAndFewRows) {
  WEFT_NEEDS_A_GPU();
  for (size_t window : {0, 1, 30, 64, 600})
    for (const std::vector<size_t>& lengths : {kLengths, {5}, {1500}}) {
      const Heads heads{DType::bf16, 14, 2, 128, window};
      Step step(heads, lengths);
      for (bool invariant : {false, true})
        EXPECT_TRUE(step.run(true, invariant) == step.run(false, invariant))
            << heads.text() << " sequences " << lengths.size() << " invariant " << invariant;
    }
}

TEST(GpuAttention, PrefillThatRotatesHasTheBitsOfTwoKernels) {
  WEFT_NEEDS_A_GPU();
  for (DType dtype : {DType::bf16, DType::f16})
    for (size_t head_dim : {64, 128})
      for (size_t group : {1, 7})
        for (size_t window : {0, 100}) {
          const Heads heads{dtype, 2 * group, 2, head_dim, window};
          Step step(heads, {8, 64, 127, 128, 129, 300, 701}, 260);
          EXPECT_TRUE(step.run_tiles(true) == step.run_tiles(false)) << heads.text();
        }
}

}  // namespace
}  // namespace weft::kernels
