// Synthetic weights: the documented formula, any cut gives the same bits, and sane statistics.
#include "runtime/synthetic.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <set>

#include "runtime/base/error.h"
#include "runtime/tensor_list.h"
#include "tests/support/small_model.h"

namespace weft::runtime {
namespace {

std::vector<float> make(uint64_t seed, const std::string& name, std::vector<size_t> shape,
                        DType dtype) {
  std::vector<std::byte> stored(n_elements(shape) * dtype_bytes(dtype));
  make_elements(synthetic_key(seed, name), synthetic_shape(name, shape), 0, n_elements(shape),
                stored.data(), dtype);
  std::vector<float> values(n_elements(shape));
  convert(stored.data(), dtype, values.data(), DType::f32, values.size());
  return values;
}

// The header's formula, word for word.
double by_the_book(uint64_t seed, const std::string& name, size_t element, double center,
                   float scale) {
  const auto mix = [](uint64_t x) {
    x ^= x >> 30;
    x *= 0xbf58476d1ce4e5b9u;
    x ^= x >> 27;
    x *= 0x94d049bb133111ebu;
    return x ^ x >> 31;
  };
  uint64_t hash = 14695981039346656037u;
  for (char c : name) hash = (hash ^ static_cast<uint64_t>(c)) * 1099511628211u;
  const uint64_t key = mix(hash + mix(seed + 0x9e3779b97f4a7c15u));
  const uint64_t word = mix(key + (element / 4 + 1) * 0x9e3779b97f4a7c15u);
  const auto k = static_cast<int16_t>(word >> 16 * (element % 4) & 0xffff);
  return center + static_cast<double>(static_cast<float>(scale * (static_cast<float>(k) + 0.5f)));
}

TEST(Synthetic, FollowsItsFormula) {
  const std::string name = "model.layers.5.mlp.up_proj.weight";
  const auto values = make(42, name, {33, 100}, DType::f32);
  const float scale = static_cast<float>(0.1 * std::sqrt(3.0) / 32768.0);
  for (size_t i = 0; i < values.size(); ++i)
    ASSERT_EQ(values[i], static_cast<float>(by_the_book(42, name, i, 0, scale))) << i;
}

TEST(Synthetic, AnyCutGivesTheSameBits) {
  const std::string name = "lm_head.weight";
  const SyntheticShape shape = synthetic_shape(name, {50, 101});
  for (DType dtype : {DType::bf16, DType::f16, DType::f32}) {
    const size_t element = dtype_bytes(dtype), n = 50 * 101;
    std::vector<std::byte> whole(n * element);
    make_elements(synthetic_key(1, name), shape, 0, n, whole.data(), dtype);
    for (size_t begin : {size_t{0}, size_t{1}, size_t{3}, size_t{1023}, size_t{1025}, n - 1})
      for (size_t length : {size_t{1}, size_t{5}, size_t{1024}, size_t{2050}}) {
        const size_t taken = std::min(length, n - begin);
        std::vector<std::byte> part(taken * element);
        make_elements(synthetic_key(1, name), shape, begin, taken, part.data(), dtype);
        EXPECT_EQ(std::memcmp(part.data(), whole.data() + begin * element, part.size()), 0)
            << begin << " + " << taken;
      }
  }
}

TEST(Synthetic, RoundsOnceToTheModelsDtype) {
  const auto exact = make(3, "model.norm.weight", {5000}, DType::f32);
  const auto half = make(3, "model.norm.weight", {5000}, DType::f16);
  const auto brain = make(3, "model.norm.weight", {5000}, DType::bf16);
  for (size_t i = 0; i < exact.size(); ++i) {
    ASSERT_EQ(half[i], to_float(round_f16(exact[i])));
    ASSERT_EQ(brain[i], to_float(round_bf16(exact[i])));
  }
}

TEST(Synthetic, HasTheVarianceItPromises) {
  constexpr size_t kRows = 500, kColumns = 200;
  const auto values = make(9, "model.layers.0.mlp.up_proj.weight", {kRows, kColumns}, DType::f32);
  double sum = 0, squares = 0, neighbours = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    sum += values[i];
    squares += static_cast<double>(values[i]) * values[i];
    if (i > 0) neighbours += static_cast<double>(values[i]) * values[i - 1];
  }
  const double n = kRows * kColumns, variance = 1.0 / kColumns;
  EXPECT_NEAR(sum / n, 0, 5 * std::sqrt(variance / n));
  EXPECT_NEAR(squares / n, variance, 0.02 * variance);
  EXPECT_NEAR(neighbours / n, 0, 5 * variance / std::sqrt(n));
  for (float x : make(9, "model.norm.weight", {1000}, DType::bf16)) {
    EXPECT_GE(x, 0.75f);
    EXPECT_LE(x, 1.25f);
  }
  for (float x : make(9, "model.layers.0.self_attn.q_proj.bias", {1000}, DType::bf16))
    EXPECT_LE(std::abs(x), 0.125f);
}

TEST(Synthetic, DependsOnSeedAndName) {
  std::set<uint64_t> keys;
  for (uint64_t seed = 0; seed < 20; ++seed)
    for (const NamedShape& tensor : tensor_list(test::full_model()))
      keys.insert(synthetic_key(seed, tensor.name));
  EXPECT_EQ(keys.size(), 20 * tensor_list(test::full_model()).size());
}

TEST(Synthetic, IsASourceOfEveryTensor) {
  planner::ModelSpec spec = test::full_model();
  spec.dtype = DType::f16;
  const auto source = make_synthetic(spec, 5);
  kernels::ThreadPool pool(2);
  for (const NamedShape& tensor : tensor_list(spec)) {
    ASSERT_NE(source->find(tensor.name), nullptr);
    EXPECT_EQ(source->find(tensor.name)->shape, tensor.shape);
    EXPECT_EQ(source->find(tensor.name)->dtype, DType::f16);
  }
  EXPECT_EQ(source->find("x"), nullptr);
  const size_t h = spec.hidden;
  std::vector<f16> all(spec.vocab * h), some(17 * h);
  source->read_rows(kHeadName, 0, spec.vocab, all.data(), pool);
  source->read_rows(kHeadName, 100, 117, some.data(), pool);
  EXPECT_EQ(std::memcmp(some.data(), all.data() + 100 * h, some.size() * 2), 0);
  EXPECT_EQ(source->bytes_read(), (all.size() + some.size()) * 2);
  EXPECT_THROW(source->read_rows(kHeadName, 300, 302, some.data(), pool), Error);
}

TEST(TensorList, CountsTheParameters) {
  for (planner::ModelSpec spec : {test::small_model(), test::full_model()})
    for (bool tied : {false, true}) {
      spec.tied_embeddings = tied;
      size_t n = 0;
      for (const NamedShape& tensor : tensor_list(spec)) n += n_elements(tensor.shape);
      EXPECT_EQ(n, planner::n_parameters(spec));
    }
}

}  // namespace
}  // namespace weft::runtime
