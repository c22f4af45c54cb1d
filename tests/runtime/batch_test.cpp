// Batches and results over the wire: whole round trips, and damage that is noticed.
#include "runtime/batch.h"

#include <gtest/gtest.h>

#include "runtime/base/error.h"
#include "runtime/token_results.h"
#include "tests/support/small_model.h"

namespace weft::runtime {
namespace {

planner::Limits limits() {
  planner::Limits l = test::small_limits(3, 5, 4);
  l.context = 96;
  return l;
}

Batch filled() {
  Batch batch;
  batch.reserve(limits());
  batch.id = 7;
  batch.entries = {{2, 0, 4, 1, 0, 1, 1, 1, 0}, {1, 9, 1, 0, 3, 0, 0, 1, 0}};
  batch.tokens = {5, 6, 7, 8};
  batch.blocks = {3};
  batch.starts.resize(1);
  batch.starts[0].temperature = 0.5f;
  batch.starts[0].seed = 1234567890123ull;
  return batch;
}

TEST(Batch, ComesBackAsItWent) {
  const Batch batch = filled();
  std::vector<std::byte> wire(Batch::max_bytes(limits()));
  const size_t n = batch.encode(wire);
  Batch back;
  back.reserve(limits());
  back.decode(std::span(wire).first(n));
  EXPECT_EQ(back.id, 7u);
  ASSERT_EQ(back.entries.size(), 2u);
  EXPECT_EQ(back.entries[1].first_position, 9);
  EXPECT_EQ(back.entries[1].output_index, 3u);
  EXPECT_EQ(back.tokens, batch.tokens);
  EXPECT_EQ(back.blocks, batch.blocks);
  EXPECT_EQ(back.starts[0].seed, 1234567890123ull);
  EXPECT_EQ(back.n_rows(), 5u);
  EXPECT_EQ(back.n_samples(), 2u);
}

TEST(Batch, EveryCutIsNoticed) {
  const Batch batch = filled();
  std::vector<std::byte> wire(Batch::max_bytes(limits()));
  const size_t n = batch.encode(wire);
  for (size_t cut = 0; cut < n; ++cut) {
    Batch back;
    back.reserve(limits());
    EXPECT_THROW(back.decode(std::span(wire).first(cut)), Error) << cut << " of " << n;
  }
}

TEST(Batch, CountsBeyondTheLimitsAreNoticed) {
  const Batch batch = filled();
  std::vector<std::byte> wire(Batch::max_bytes(limits()));
  const size_t n = batch.encode(wire);
  planner::Limits smaller = limits();
  smaller.max_sequences = 1;
  Batch back;
  back.reserve(smaller);
  EXPECT_THROW(back.decode(std::span(wire).first(n)), Error);
}

TEST(Batch, HasRoomForTheBlocksOfItsSequencesAlone) {
  planner::Limits many = limits();
  many.kv_blocks = size_t{1} << 30;
  EXPECT_EQ(Batch::max_bytes(many), 32u + 3 * (24 + 24) + 5 * 4 + 3 * 2 * 4);
  EXPECT_EQ(Batch::max_bytes(limits()), 32u + 3 * (24 + 24) + 5 * 4 + 4 * 4);
  Batch batch;
  batch.reserve(many);
  EXPECT_EQ(batch.blocks.capacity(), 6u);
}

TEST(TokenResults, ComeBackAsTheyWent) {
  const ResultShape shape{.logprobs = true, .n_top = 2, .n_logits = 3};
  TokenResults results;
  results.reserve(4, shape);
  results.resize(2);
  results.batch = 11;
  results.token = {4, 5};
  results.top_token = {1, 2, 3, 4};
  results.logits = {0, 1, 2, 3, 4, 5};
  std::vector<std::byte> wire(TokenResults::max_bytes(4, shape));
  const size_t n = results.encode(wire);
  TokenResults back;
  back.reserve(4, shape);
  back.decode(std::span(wire).first(n));
  EXPECT_EQ(back.batch, 11u);
  EXPECT_EQ(back.token, results.token);
  EXPECT_EQ(back.top_token, results.top_token);
  EXPECT_EQ(back.logits, results.logits);
}

}  // namespace
}  // namespace weft::runtime
