// Shards cover every dimension once, for models that divide well and badly.
#include "planner/shard_shapes.h"

#include "tests/planner/examples.h"

namespace weft::planner {
namespace {

using Sizes = std::vector<size_t>;

TEST(ShardShapes, LegalWidths) {
  EXPECT_EQ(legal_tp(model("deepseek-coder-33b")), (Sizes{1, 2, 4, 8, 56}));
  EXPECT_EQ(legal_tp(model("qwen3-32b")), (Sizes{1, 2, 4, 8, 16, 32, 64}));
  EXPECT_EQ(legal_tp(model("qwen2.5-coder-32b")), (Sizes{1, 2, 4, 8, 40}));
  EXPECT_EQ(legal_tp(small_spec()), (Sizes{1, 2, 4, 8}));
}

TEST(ShardShapes, ChunksComeFromTheHeadsAlone) {
  EXPECT_EQ(n_chunks(model("deepseek-coder-33b")), 8u);
  ModelSpec spec = small_spec();
  for (const auto& [heads, chunks] :
       {std::pair<size_t, size_t>{1, 1}, {2, 2}, {6, 2}, {12, 4}, {7, 1}, {64, 8}, {40, 8}}) {
    spec.n_heads = heads;
    EXPECT_EQ(n_chunks(spec), chunks) << heads;
  }
}

TEST(ShardShapes, SaysWhyAWidthCannotBe) {
  const ModelSpec coder = model("deepseek-coder-33b");
  EXPECT_EQ(tp_problem(coder, 7, false),
            "TP 7: 8 KV heads are neither divided by it nor divide it; legal: 1 2 4 8 56");
  EXPECT_EQ(tp_problem(coder, 7, true), tp_problem(coder, 7, false) + " (56 by --numerics fast)");
  EXPECT_EQ(tp_problem(coder, 16, false), "TP 16: does not divide 56 heads; legal: 1 2 4 8 56");
  EXPECT_EQ(tp_problem(coder, 56, true),
            "TP 56 does not divide the 8 fixed chunks of invariant numerics; legal: 1 2 4 8 56 (56 "
            "by --numerics fast)");
  EXPECT_EQ(tp_problem(coder, 56, false), "");
  EXPECT_EQ(tp_problem(coder, 0, false), "TP 0: a stage has at least one rank; legal: 1 2 4 8 56");
  for (size_t tp : {1, 2, 4, 8}) EXPECT_EQ(tp_problem(coder, tp, true), "");
}

// Parts of equal size, in order, over the whole; `sharers` neighbours hold the same one.
void expect_cover(const Sizes& begins, const Sizes& ends, size_t whole, size_t sharers) {
  size_t next = 0;
  for (size_t rank = 0; rank < begins.size(); ++rank) {
    if (rank % sharers == 0) {
      EXPECT_EQ(begins[rank], next) << "rank " << rank;
      next = ends[rank];
    }
    EXPECT_EQ(begins[rank], begins[rank / sharers * sharers]) << "rank " << rank;
    EXPECT_EQ(ends[rank] - begins[rank], ends[0] - begins[0]) << "rank " << rank;
  }
  EXPECT_EQ(next, whole);
}

void expect_cover(const ModelSpec& spec, size_t tp, Range ShardShapes::*part, size_t whole,
                  size_t sharers) {
  Sizes begins, ends;
  for (size_t rank = 0; rank < tp; ++rank) {
    begins.push_back((shard_shapes(spec, tp, rank).*part).begin);
    ends.push_back((shard_shapes(spec, tp, rank).*part).end);
  }
  expect_cover(begins, ends, whole, sharers);
}

TEST(ShardShapes, CoverEverythingOnce) {
  ModelSpec odd = small_spec();  // one chunk only, KV heads replicated thrice
  odd.n_heads = 9;
  odd.n_kv_heads = 3;
  odd.ffn = 31;
  odd.vocab = 33;
  for (const ModelSpec& spec :
       {model("deepseek-coder-33b"), small_spec(), model("qwen3-235b-a22b"), odd})
    for (size_t tp : legal_tp(spec)) {
      SCOPED_TRACE(fmt::format("{} TP {}", spec.name, tp));
      const size_t sharers = tp > spec.n_kv_heads ? tp / spec.n_kv_heads : 1;
      expect_cover(spec, tp, &ShardShapes::heads, spec.n_heads, 1);
      expect_cover(spec, tp, &ShardShapes::kv_heads, spec.n_kv_heads, sharers);
      expect_cover(spec, tp, &ShardShapes::ffn, padded_ffn(spec, tp), 1);
      expect_cover(spec, tp, &ShardShapes::vocab, padded_vocab(spec, tp), 1);
      EXPECT_GE(padded_ffn(spec, tp), spec.ffn);
      EXPECT_GE(padded_vocab(spec, tp), spec.vocab);
      EXPECT_LT(padded_vocab(spec, tp), spec.vocab + 16 * tp);
    }
}

// Query head i attends with KV head i / (n_heads / n_kv_heads), which its own rank must hold.
TEST(ShardShapes, EveryRankHoldsTheKvHeadsOfItsQueries) {
  for (const ModelSpec& spec : {model("deepseek-coder-33b"), small_spec()})
    for (size_t tp : legal_tp(spec))
      for (size_t rank = 0; rank < tp; ++rank) {
        const ShardShapes shapes = shard_shapes(spec, tp, rank);
        const size_t group = spec.n_heads / spec.n_kv_heads;
        EXPECT_EQ(shapes.heads.begin / group, shapes.kv_heads.begin) << tp << " " << rank;
        EXPECT_EQ((shapes.heads.end - 1) / group, shapes.kv_heads.end - 1) << tp << " " << rank;
      }
}

TEST(ShardShapes, ChunksAreTheSameInEveryInvariantLayout) {
  for (const ModelSpec& spec : {model("deepseek-coder-33b"), small_spec()})
    for (size_t tp = 1; tp <= n_chunks(spec); tp *= 2) {
      EXPECT_EQ(padded_ffn(spec, tp), padded_ffn(spec, 1));
      const ShardShapes shapes = shard_shapes(spec, tp, tp - 1);
      EXPECT_EQ(shapes.n_chunks * tp, n_chunks(spec));
      EXPECT_EQ(shapes.heads.size() % shapes.n_chunks, 0u);
      EXPECT_EQ(shapes.ffn.size() % (16 * shapes.n_chunks), 0u);
    }
  EXPECT_EQ(padded_ffn(small_spec(), 4), 384u);  // 344 to a multiple of 16 x 8 chunks
  EXPECT_EQ(padded_ffn(model("deepseek-coder-33b"), 8), 19200u);
}

TEST(ShardShapes, WidthsBeyondTheChunksStillSplitEvenly) {
  const ModelSpec coder = model("deepseek-coder-33b");
  const ShardShapes shapes = shard_shapes(coder, 56, 55);
  EXPECT_EQ(shapes.heads, (Range{55, 56}));
  EXPECT_EQ(shapes.kv_heads, (Range{7, 8}));
  EXPECT_EQ(padded_ffn(coder, 56), 19712u);  // to a multiple of 16 x 56
  EXPECT_EQ(shapes.ffn.size(), 352u);
  EXPECT_EQ(shapes.n_chunks, 1u);
}

TEST(ShardShapes, IllegalWidthsAndRanksAreABrokenPromise) {
  EXPECT_THROW(shard_shapes(small_spec(), 3, 0), std::logic_error);
  EXPECT_THROW(shard_shapes(small_spec(), 2, 2), std::logic_error);
}

}  // namespace
}  // namespace weft::planner
