// Sorts the rows of a batch into tiles and single rows, on the host.
#include <algorithm>

#include "kernels/gpu_attention.h"
#include "runtime/base/error.h"

namespace weft::kernels {
namespace {

// Rows from `row` on that continue its sequence.
size_t run_length(const PagedRows& rows, size_t row) {
  size_t n = 1;
  while (row + n < rows.tokens && rows.sequence[row + n] == rows.sequence[row] &&
         rows.positions[row + n] == rows.positions[row] + static_cast<int32_t>(n))
    ++n;
  return n;
}

}  // namespace

GpuRowCounts gpu_attention_rows(const PagedRows& rows, std::span<int32_t> single,
                                std::span<GpuTile> tiles) {
  GpuRowCounts counts;
  for (size_t row = 0, n = 0; row < rows.tokens; row += n) {
    n = 1;
    if (rows.positions[row] < 0) continue;
    n = run_length(rows, row);
    if (n < kGpuShortestRun) {
      WEFT_EXPECT(counts.n_single + n <= single.size());
      for (size_t i = row; i < row + n; ++i) single[counts.n_single++] = static_cast<int32_t>(i);
      continue;
    }
    for (size_t i = row; i < row + n; i += kGpuTileRows) {
      WEFT_EXPECT(counts.n_tiles < tiles.size());
      tiles[counts.n_tiles++] = {static_cast<int32_t>(i),
                                 static_cast<int32_t>(std::min(kGpuTileRows, row + n - i))};
    }
  }
  std::sort(tiles.begin(), tiles.begin() + static_cast<std::ptrdiff_t>(counts.n_tiles),
            [&](const GpuTile& a, const GpuTile& b) {
              const int32_t a_position = rows.positions[a.first_row];
              const int32_t b_position = rows.positions[b.first_row];
              return a_position != b_position ? a_position < b_position : a.first_row < b.first_row;
            });
  return counts;
}

}  // namespace weft::kernels
