// How decode attention's work is cut: rows into parts of their context, parts into items of a KV
// head, items into steps of a warp's ring. Every block works it out by itself, from positions
// alone.
#pragma once

#include "kernels/gpu_attention_kernels.cuh"
#include "kernels/gpu_attention_mma.cuh"

namespace weft::kernels::gpu {

template <class T>
struct DecodeArgs {
  const T* q;  // [tokens, n_heads, head_dim], rows q_stride apart
  KvLayer cache;
  GpuRows rows;
  const int32_t* single;  // [n_single] or null
  int n_single;
  int n_heads;
  int n_kv_heads;
  int group;       // query heads a KV head
  int head_tiles;  // items that a group takes
  size_t q_stride;
  size_t window;
  const float* rope;  // [context, head_dim / 2, 2] or null: q, k, v are rotated and in the cache
  float c;            // scale · log2 e
  bool whole_parts;   // of kSoftmaxSpan positions, however few there are
  DecodeHeader* header;
  float* parts;  // [parts, n_heads, head_dim + 4]: values, largest score, sum
  T* out;        // [tokens, n_heads, head_dim]
};

inline constexpr int kLogSpan = 9;
static_assert(size_t{1} << kLogSpan == kSoftmaxSpan);
inline constexpr int kLogShortest = 6;  // a cache block

// Rows and their parts, in shared memory; the same in every block of the grid.
struct DecodeRows {
  struct Sums {
    int32_t total[4];  // parts of each length
    int32_t of_warp[32];
    int32_t carry;
  };
  Sums* sums;
  int32_t* prefix;    // [n + 1] parts of the rows before
  int32_t* end;       // [n] positions that a row sees end here; 0 for padding
  int32_t* sequence;  // [n]
  int32_t* row;       // [n]

  __device__ DecodeRows(std::byte* shared, int n)
      : sums(reinterpret_cast<Sums*>(shared)),
        prefix(reinterpret_cast<int32_t*>(sums + 1)),
        end(prefix + n + 1),
        sequence(end + n),
        row(sequence + n) {}
  static size_t bytes(int n) { return sizeof(Sums) + (4 * static_cast<size_t>(n) + 1) * 4; }
};

__device__ inline int parts_of(int end, size_t window, int log_part) {
  if (end == 0) return 0;
  return ((end - 1) >> log_part) - (first_visible(end - 1, window) >> log_part) + 1;
}

// Fills `rows`, returns the logarithm of a part's length. Whole block.
template <class T>
__device__ int plan_parts(const DecodeArgs<T>& a, const DecodeRows& rows) {
  const int thread = static_cast<int>(threadIdx.x), n_threads = static_cast<int>(blockDim.x);
  const int lane = thread % 32, warp = thread / 32;
  if (thread < 4) rows.sums->total[thread] = 0;
  if (thread == 0) rows.sums->carry = 0;
  __syncthreads();
  int count[4] = {};
  for (int i = thread; i < a.n_single; i += n_threads) {
    const int row = a.single == nullptr ? i : a.single[i];
    const int end = a.rows.positions[row] + 1;
    rows.row[i] = row;
    rows.end[i] = end;
    rows.sequence[i] = end == 0 ? 0 : a.rows.sequence[row];
#pragma unroll
    for (int j = 0; j < 4; ++j) count[j] += parts_of(end, a.window, kLogSpan - j);
  }
#pragma unroll
  for (int j = 0; j < 4; ++j) {
    const int sum = __reduce_add_sync(~0u, count[j]);
    if (lane == 0) atomicAdd(&rows.sums->total[j], sum);
  }
  __syncthreads();
  int shorter = 0;
  const int wanted = static_cast<int>(gridDim.x) * 3 / 2 / (a.n_kv_heads * a.head_tiles);
  while (!a.whole_parts && shorter < kLogSpan - kLogShortest && rows.sums->total[shorter] < wanted)
    ++shorter;
  const int log_part = kLogSpan - shorter;

  for (int base = 0; base < a.n_single; base += n_threads) {
    const int i = base + thread;
    int sum = i < a.n_single ? parts_of(rows.end[i], a.window, log_part) : 0;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const int left = __shfl_up_sync(~0u, sum, step);
      if (lane >= step) sum += left;
    }
    if (lane == 31) rows.sums->of_warp[warp] = sum;
    __syncthreads();
    for (int w = 0; w < warp; ++w) sum += rows.sums->of_warp[w];
    sum += rows.sums->carry;
    if (i < a.n_single) rows.prefix[i + 1] = sum;
    __syncthreads();
    if (thread == n_threads - 1) rows.sums->carry = sum;
    __syncthreads();
  }
  if (thread == 0) rows.prefix[0] = 0;
  __syncthreads();
  return log_part;
}

struct DecodeItem {
  int i;      // of the single rows
  int part;   // over all rows
  int kv;     // KV head
  int tile;   // of the group's heads
  int first;  // first position of the part, visible or not
  int begin;  // visible positions
  int end;
};

template <class T>
__device__ DecodeItem decode_item(const DecodeArgs<T>& a, const DecodeRows& rows, int log_part,
                                  int item) {
  DecodeItem it;
  const int each = a.n_kv_heads * a.head_tiles;
  it.part = item / each;
  it.kv = item % each % a.n_kv_heads;
  it.tile = item % each / a.n_kv_heads;
  int low = 0, high = a.n_single;  // prefix[low] <= part < prefix[high]
  while (high - low > 1) {
    const int middle = (low + high) / 2;
    (rows.prefix[middle] <= it.part ? low : high) = middle;
  }
  it.i = low;
  const int end = rows.end[low], begin = first_visible(end - 1, a.window);
  it.first = ((begin >> log_part) + it.part - rows.prefix[low]) << log_part;
  it.begin = max(begin, it.first);
  it.end = min(end, it.first + (1 << log_part));
  return it;
}

// Where a warp's copies are: steps of its items, one after the other.
template <class T>
class DecodeCursor {
 public:
  __device__ DecodeCursor(const DecodeArgs<T>& args, const DecodeRows& rows, int log_part, int item,
                          int stride)
      : a_(args), rows_(rows), log_part_(log_part), item_(item), stride_(stride) {
    n_items_ = rows.prefix[args.n_single] * args.n_kv_heads * args.head_tiles;
    look_ahead(item);
    if (!over()) open();
  }

  __device__ int n_items() const { return n_items_; }
  __device__ bool over() const { return item_ >= n_items_; }
  // No kernel of this batch writes the step's keys, nor do rows of the same run.
  __device__ bool is_old() const {
    return a_.rope != nullptr || over() ||
           at_ + kStepKeys + static_cast<int>(kGpuShortestRun) <= rows_.end[it_.i];
  }

  // Block, row in the block, KV head and visible rows of the step.
  __device__ int block() const {
    return __shfl_sync(~0u, blocks_, (at_ - it_.first) / static_cast<int>(kKvBlockTokens));
  }
  __device__ int row() const { return at_ % static_cast<int>(kKvBlockTokens); }
  __device__ int kv() const { return it_.kv; }
  __device__ int n_rows() const { return it_.end - at_; }

  __device__ void advance() {
    at_ += kStepKeys;
    if (at_ < it_.end) return;
    item_ += stride_;
    if (!over()) open();
  }

 private:
  // The next item's block ids are asked for an item ahead.
  __device__ void open() {
    it_ = next_;
    blocks_ = next_blocks_;
    at_ = it_.begin / kStepKeys * kStepKeys;
    look_ahead(item_ + stride_);
  }

  __device__ void look_ahead(int item) {
    if (item >= n_items_) return;
    next_ = decode_item(a_, rows_, log_part_, item);
    // The part's block ids, one a lane.
    constexpr int kBlock = static_cast<int>(kKvBlockTokens);
    const int position = next_.first + static_cast<int>(threadIdx.x % 32) * kBlock;
    next_blocks_ = 0;
    if (position < next_.end && position + kBlock > next_.begin)
      next_blocks_ = a_.rows.block_table[rows_.sequence[next_.i] * a_.rows.table_stride +
                                         static_cast<size_t>(position / kBlock)];
  }

  const DecodeArgs<T>& a_;
  const DecodeRows& rows_;
  int log_part_;
  int item_;
  int stride_;
  int n_items_;
  DecodeItem it_{};
  DecodeItem next_{};
  int at_ = 0;
  int blocks_ = 0;
  int next_blocks_ = 0;
};

}  // namespace weft::kernels::gpu
