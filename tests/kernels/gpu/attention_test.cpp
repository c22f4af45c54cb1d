// Attention on the GPU against its CPU twin in double, over a cache full of NaN where nothing was
// written, and against itself: in invariant mode a row's bits must not depend on how its batch was
// cut.
#include "kernels/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <thread>

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
};

std::string name(const Heads& h) {
  return fmt::format("{} heads {}/{} x {} window {}", test::name(h.dtype), h.n_heads, h.n_kv_heads,
                     h.head_dim, h.window);
}

// How rows reach the kernels.
enum class Way { sorted, all_single };

// Sequences with all their queries, keys and values; batches are cut from them.
class Model {
 public:
  Model(const Heads& heads, std::vector<size_t> lengths, float deviation = 1)
      : h_(heads),
        lengths_(std::move(lengths)),
        positions_(*std::max_element(lengths_.begin(), lengths_.end())),
        width_(h_.n_heads * h_.head_dim),
        stride_(width_ + 8),
        cache_(h_.dtype, h_.dtype, h_.n_kv_heads, h_.head_dim, lengths_.size(), positions_),
        q_(Tensor::random(h_.dtype, kQueries + width_, 1, deviation)) {
    for (size_t s = 0; s < lengths_.size(); ++s) append(s);
  }

  size_t width() const { return width_; }
  std::vector<int32_t>& table() { return cache_.table(); }
  void add(size_t sequence, size_t begin, size_t end) {
    rows_.add(static_cast<int32_t>(sequence), begin, end);
  }
  void add_padding() {
    rows_.positions.push_back(-1);
    rows_.sequence.push_back(0);
  }
  void clear() { rows_ = {}; }
  size_t tokens() const { return rows_.positions.size(); }

  // [tokens, n_heads · head_dim] of the batch, by double on the CPU; padding stays NaN.
  std::vector<float> oracle() {
    const Tensor q = queries();
    Tensor out(DType::f32, tokens() * width_);
    const size_t n_threads = std::max(1u, std::thread::hardware_concurrency());
    std::vector<std::thread> threads;
    for (size_t i = 0; i < n_threads; ++i)
      threads.emplace_back([&, i] {
        for (size_t t = i; t < tokens(); t += n_threads) oracle_row(q, out, t);
      });
    for (std::thread& thread : threads) thread.join();
    return out.values();
  }

  // Elements as they lie in memory; NaN where nothing was written.
  Tensor run(bool invariant, Way way = Way::sorted) {
    std::vector<int32_t> single(tokens());
    std::vector<GpuTile> tiles(gpu_tiles_at_most(tokens()));
    GpuRowCounts counts;
    if (way == Way::sorted)
      counts = gpu_attention_rows(rows_.paged(cache_), single, tiles);
    else
      counts.n_single = tokens();

    const Tensor q = queries();
    Tensor out(h_.dtype, tokens() * width_);
    const GpuArray<std::byte> gpu_q(q.bytes()), gpu_out(out.bytes()), gpu_cache(cache_.bytes());
    const GpuArray<int32_t> positions(rows_.positions), sequence(rows_.sequence),
        table(cache_.table()), gpu_single(single);
    const GpuArray<GpuTile> gpu_tiles(tiles);
    const size_t workspace_bytes = gpu_attention_workspace_bytes(
        counts.n_single, counts.n_single * positions_, h_.n_heads, h_.head_dim);
    const GpuArray<std::byte> workspace(workspace_bytes, std::byte{0xff});

    GpuAttention a;
    a.q = {gpu_q.data(), h_.dtype};
    a.cache = cache_.layer(1);
    a.cache.base = gpu_cache.data() + (a.cache.base - cache_.bytes().data());
    a.rows = {positions.data(), sequence.data(), table.data(), cache_.columns(), tokens()};
    a.out = {gpu_out.data(), h_.dtype};
    a.single = way == Way::sorted ? gpu_single.data() : nullptr;
    a.n_single = counts.n_single;
    a.tiles = gpu_tiles.data();
    a.n_tiles = counts.n_tiles;
    a.max_context = positions_;
    a.n_heads = h_.n_heads;
    a.n_kv_heads = h_.n_kv_heads;
    a.head_dim = h_.head_dim;
    a.q_stride = stride_;
    a.window = h_.window;
    a.scale = 1 / std::sqrt(static_cast<float>(h_.head_dim));
    a.invariant = invariant;
    a.dependent_launch = invariant;
    a.workspace = workspace.data();
    gpu_attention(a, nullptr);
    check(cudaDeviceSynchronize(), "attention");
    const std::vector<std::byte> bytes = gpu_out.get();
    std::copy(bytes.begin(), bytes.end(), static_cast<std::byte*>(out.out().data));
    return out;
  }

 private:
  static constexpr size_t kQueries = 65'537;

  // Rows are cut from one array of random values, each from a place of its own.
  Tensor queries() const {
    Tensor q(h_.dtype, tokens() * stride_);
    for (size_t t = 0; t < tokens(); ++t) {
      if (rows_.positions[t] < 0) continue;
      const size_t row = static_cast<size_t>(rows_.sequence[t]) * positions_ +
                         static_cast<size_t>(rows_.positions[t]);
      const size_t from = row * 7919 % kQueries;
      convert(q_.in(from).data, h_.dtype, q.out(t * stride_).data, h_.dtype, width_);
    }
    return q;
  }

  void oracle_row(const Tensor& q, Tensor& out, size_t t) {
    if (rows_.positions[t] < 0) return;
    Attention a;
    a.q = q.in(t * stride_);
    a.cache = cache_.layer(1);
    a.rows = rows_.paged(cache_);
    a.rows.positions += t;
    a.rows.sequence += t;
    a.rows.tokens = 1;
    a.out = out.out(t * width_);
    a.n_heads = h_.n_heads;
    a.n_kv_heads = h_.n_kv_heads;
    a.head_dim = h_.head_dim;
    a.q_stride = stride_;
    a.window = h_.window;
    a.scale = 1 / std::sqrt(static_cast<float>(h_.head_dim));
    ThreadPool pool(1);
    Stream stream(pool);
    attention<double>(a, stream);
  }

  void append(size_t sequence) {
    Rows rows;
    rows.add(static_cast<int32_t>(sequence), 0, lengths_[sequence]);
    const size_t kv_width = h_.n_kv_heads * h_.head_dim;
    const auto seed = static_cast<uint32_t>(2 * sequence);
    const Tensor k = Tensor::random(h_.dtype, lengths_[sequence] * kv_width, 100 + seed);
    const Tensor v = Tensor::random(h_.dtype, lengths_[sequence] * kv_width, 101 + seed);
    KvAppend a;
    a.k = k.in();
    a.v = v.in();
    a.cache = cache_.layer(1);
    a.rows = rows.paged(cache_);
    a.n_kv_heads = h_.n_kv_heads;
    a.head_dim = h_.head_dim;
    a.stride = kv_width;
    ThreadPool pool(1);
    Stream stream(pool);
    kv_append(a, stream);
  }

  Heads h_;
  std::vector<size_t> lengths_;
  size_t positions_;
  size_t width_;
  size_t stride_;
  PagedCache cache_;
  Tensor q_;
  Rows rows_;
};

// Each row's and head's relative error: probabilities are rounded to the dtype, so an element near
// zero may be off by more than its own size.
testing::AssertionResult close(const std::vector<float>& got, const std::vector<float>& want,
                               const Heads& h) {
  const double limit = h.dtype == DType::bf16 ? 1e-2 : h.dtype == DType::f16 ? 1.5e-3 : 1e-5;
  double worst = 0;
  size_t at = 0, n_bad = 0;
  for (size_t row = 0; row < want.size() / h.head_dim; ++row) {
    double error = 0, size = 0;
    for (size_t i = row * h.head_dim; i < (row + 1) * h.head_dim; ++i) {
      if (std::isnan(want[i]) && std::isnan(got[i])) continue;  // padding
      error += (double{got[i]} - want[i]) * (double{got[i]} - want[i]);
      size += double{want[i]} * want[i];
    }
    // Values that all but cancel leave float32's rounding of what was there before.
    size = std::max(size, 4e-4 * static_cast<double>(h.head_dim));
    error = std::sqrt(error / size);
    n_bad += !(error <= limit);
    if (error <= worst) continue;
    worst = std::isnan(error) ? INFINITY : error;
    at = row;
  }
  if (n_bad == 0) return testing::AssertionSuccess();
  const size_t i = at * h.head_dim;
  return testing::AssertionFailure()
         << name(h) << ": " << n_bad << " of " << want.size() / h.head_dim
         << " heads are off; worst: row " << at / h.n_heads << " head " << at % h.n_heads << " by "
         << worst << ": got " << got[i] << " " << got[i + 1] << ", want " << want[i] << " "
         << want[i + 1];
}

const std::vector<size_t> kLengths{1, 31, 64, 65, 511, 512, 513, 700, 1300};

void add_last_rows(Model& model) {
  for (size_t s = 0; s < kLengths.size(); ++s) {
    model.add(s, kLengths[s] - 1, kLengths[s]);
    if (s % 3 == 1) model.add_padding();
  }
}

TEST(GpuAttention, DecodeOfEveryShapeAgainstDouble) {
  WEFT_NEEDS_A_GPU();
  for (DType dtype : {DType::bf16, DType::f16})
    for (size_t head_dim : {64, 96, 128})
      for (size_t group : {1, 4, 7, 8, 9, 16, 20}) {
        const Heads heads{dtype, 2 * group, 2, head_dim};
        Model model(heads, kLengths);
        add_last_rows(model);
        const std::vector<float> want = model.oracle();
        for (bool invariant : {false, true})
          EXPECT_TRUE(close(model.run(invariant).values(), want, heads)) << invariant;
        EXPECT_TRUE(close(model.run(false, Way::all_single).values(), want, heads));
      }
}

TEST(GpuAttention, DecodeWithWindowsAgainstDouble) {
  WEFT_NEEDS_A_GPU();
  for (size_t window : {1, 30, 64, 100, 512, 700}) {
    const Heads heads{DType::bf16, 14, 2, 128, window};
    Model model(heads, kLengths, 3);
    add_last_rows(model);
    const std::vector<float> want = model.oracle();
    for (bool invariant : {false, true})
      EXPECT_TRUE(close(model.run(invariant).values(), want, heads)) << invariant;
  }
}

// More rows than one launch takes.
TEST(GpuAttention, DecodeOfManyRows) {
  WEFT_NEEDS_A_GPU();
  const Heads heads{DType::bf16, 7, 1, 64};
  Model model(heads, {90, 33});
  for (size_t i = 0; i < 1500; ++i) {
    const size_t position = i * 37 % 90;
    model.add(i % 2, i % 2 ? position % 33 : position, (i % 2 ? position % 33 : position) + 1);
  }
  const std::vector<float> want = model.oracle();
  for (Way way : {Way::sorted, Way::all_single})
    EXPECT_TRUE(close(model.run(false, way).values(), want, heads));
}

void add_runs(Model& model) {
  model.add(0, 0, 300);
  model.add(3, 99, 100);
  model.add_padding();
  model.add(1, 450, 700);
  model.add(2, 60, 69);
  model.add_padding();
  model.add(2, 0, 3);
}

TEST(GpuAttention, PrefillAgainstDouble) {
  WEFT_NEEDS_A_GPU();
  for (DType dtype : {DType::bf16, DType::f16})
    for (size_t head_dim : {64, 96, 128})
      for (size_t group : {1, 7}) {
        const Heads heads{dtype, 2 * group, 2, head_dim};
        Model model(heads, {300, 700, 69, 100}, 2);
        add_runs(model);
        const std::vector<float> want = model.oracle();
        for (bool invariant : {false, true})
          EXPECT_TRUE(close(model.run(invariant).values(), want, heads)) << invariant;
      }
}

TEST(GpuAttention, PrefillWithWindowsAgainstDouble) {
  WEFT_NEEDS_A_GPU();
  for (size_t window : {1, 30, 64, 100, 129, 600}) {
    const Heads heads{DType::bf16, 4, 2, 128, window};
    Model model(heads, {300, 700, 69, 100});
    add_runs(model);
    const std::vector<float> want = model.oracle();
    for (bool invariant : {false, true})
      EXPECT_TRUE(close(model.run(invariant).values(), want, heads)) << invariant;
  }
}

TEST(GpuAttention, PrefillOfLongContextAgainstDouble) {
  WEFT_NEEDS_A_GPU();
  const Heads heads{DType::bf16, 7, 1, 128};
  Model model(heads, {2500});
  model.add(0, 2200, 2500);
  const std::vector<float> want = model.oracle();
  for (bool invariant : {false, true})
    EXPECT_TRUE(close(model.run(invariant).values(), want, heads)) << invariant;
}

TEST(GpuAttention, PlainShapesAgainstDouble) {
  WEFT_NEEDS_A_GPU();
  for (DType dtype : test::kFloatTypes)
    for (size_t head_dim : {2, 10, 16, 80, 128, 256}) {
      if (dtype != DType::f32 && head_dim == 128) continue;
      for (size_t window : {0, 100}) {
        const Heads heads{dtype, 10, 2, head_dim, window};
        Model model(heads, {300, 700, 69, 100});
        add_runs(model);
        model.add(1, 699, 700);
        EXPECT_TRUE(close(model.run(true).values(), model.oracle(), heads));
      }
    }
}

// Blocks that the window has left may be gone: their ids are not looked at.
TEST(GpuAttention, FreedBlocksBehindTheWindowAreNotRead) {
  WEFT_NEEDS_A_GPU();
  const Heads heads{DType::bf16, 2, 1, 128, 50};
  for (size_t begin : {200, 299}) {
    Model model(heads, {300});
    model.add(0, begin, 300);
    const std::vector<float> want = model.oracle();
    for (size_t column = 0; column < (begin - 49) / 64; ++column) model.table()[column] = -1;
    for (bool invariant : {false, true})
      EXPECT_TRUE(close(model.run(invariant).values(), want, heads));
  }
}

// Rows of sequence 0 from batches of `chunk` rows, others around them.
std::vector<std::byte> in_chunks(Model& model, size_t begin, size_t end, size_t chunk, bool mixed,
                                 Way way) {
  std::vector<std::byte> all;
  for (; begin < end; begin += chunk) {
    const size_t last = std::min(end, begin + chunk);
    model.clear();
    if (mixed) model.add(1, 40, 43);
    const size_t before = model.tokens();
    model.add(0, begin, last);
    if (mixed) model.add(2, 300, 600);
    const Tensor out = model.run(true, way);
    const auto bytes = static_cast<std::ptrdiff_t>(model.width() * dtype_bytes(out.dtype()));
    const auto first = out.bytes().begin() + static_cast<std::ptrdiff_t>(before) * bytes;
    all.insert(all.end(), first, first + static_cast<std::ptrdiff_t>(last - begin) * bytes);
  }
  return all;
}

TEST(GpuAttention, InvariantBitsDoNotDependOnChunksOrBatches) {
  WEFT_NEEDS_A_GPU();
  for (const Heads& heads : {Heads{DType::bf16, 14, 2, 128}, Heads{DType::f16, 4, 4, 64},
                             Heads{DType::bf16, 9, 1, 96}, Heads{DType::bf16, 14, 2, 128, 600},
                             Heads{DType::bf16, 4, 2, 128, 100}, Heads{DType::f32, 4, 2, 80}}) {
    Model model(heads, {1130, 50, 600});
    const size_t begin = 480;
    const auto want = in_chunks(model, begin, 1130, 650, false, Way::sorted);
    for (size_t chunk : {1, 64, 100, 512}) {
      const size_t end = chunk == 1 ? begin + 40 : 1130;
      for (bool mixed : {false, true}) {
        const auto got = in_chunks(model, begin, end, chunk, mixed, Way::sorted);
        EXPECT_TRUE(std::equal(got.begin(), got.end(), want.begin()))
            << name(heads) << " chunks of " << chunk << " mixed " << mixed;
      }
    }
    EXPECT_EQ(in_chunks(model, begin, 1130, 650, false, Way::all_single), want) << name(heads);
  }
}

TEST(GpuAttention, RepeatsGiveTheSameBits) {
  WEFT_NEEDS_A_GPU();
  Model model({DType::bf16, 14, 2, 128}, {1130, 50, 600});
  model.add(1, 0, 50);
  model.add(0, 800, 1130);
  model.add(2, 599, 600);
  const std::vector<std::byte> want = model.run(false).bytes();
  for (int i = 0; i < 5; ++i) EXPECT_EQ(model.run(false).bytes(), want);
}

}  // namespace
}  // namespace weft::kernels
