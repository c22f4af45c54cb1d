// How a batch's rows are shared out between the GPU's kernels; needs no GPU.
#include <gtest/gtest.h>

#include "kernels/gpu_attention.h"
#include "tests/kernels/paged_cache.h"

namespace weft::kernels {
namespace {

struct Sorted {
  std::vector<int32_t> single;
  std::vector<GpuTile> tiles;
};

Sorted sorted(const test::Rows& rows) {
  const size_t tokens = rows.positions.size();
  Sorted out{std::vector<int32_t>(tokens), std::vector<GpuTile>(gpu_tiles_at_most(tokens))};
  PagedRows paged;
  paged.positions = rows.positions.data();
  paged.sequence = rows.sequence.data();
  paged.tokens = tokens;
  const GpuRowCounts counts = gpu_attention_rows(paged, out.single, out.tiles);
  out.single.resize(counts.n_single);
  out.tiles.resize(counts.n_tiles);
  return out;
}

TEST(GpuAttentionRows, RunsBecomeTilesAndTheRestIsSingle) {
  test::Rows rows;
  rows.add(0, 100, 107);  // too short
  rows.add(1, 500, 800);
  rows.positions.push_back(-1);
  rows.sequence.push_back(1);
  rows.add(2, 7, 15);
  rows.add(2, 16, 17);  // not the next position
  const Sorted got = sorted(rows);
  EXPECT_EQ(got.single, (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 316}));
  ASSERT_EQ(got.tiles.size(), 4u);
  const std::vector<std::pair<int32_t, int32_t>> want{{308, 8}, {7, 128}, {135, 128}, {263, 44}};
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(got.tiles[i].first_row, want[i].first) << i;
    EXPECT_EQ(got.tiles[i].n_rows, want[i].second) << i;
  }
}

TEST(GpuAttentionRows, EveryRowOnceAtMostTheStatedTiles) {
  for (size_t length : {1, 7, 8, 9, 127, 128, 129, 1000}) {
    test::Rows rows;
    for (int32_t s = 0; s < 5; ++s) rows.add(s, 3, 3 + length);
    const Sorted got = sorted(rows);
    std::vector<int> seen(rows.positions.size());
    for (int32_t row : got.single) ++seen[static_cast<size_t>(row)];
    for (const GpuTile& tile : got.tiles)
      for (int32_t i = 0; i < tile.n_rows; ++i) ++seen[static_cast<size_t>(tile.first_row + i)];
    for (int n : seen) EXPECT_EQ(n, 1) << length;
  }
}

TEST(GpuAttentionRows, PaddingAloneIsNothing) {
  test::Rows rows;
  rows.positions = {-1, -1};
  rows.sequence = {0, 0};
  const Sorted got = sorted(rows);
  EXPECT_TRUE(got.single.empty());
  EXPECT_TRUE(got.tiles.empty());
}

}  // namespace
}  // namespace weft::kernels
