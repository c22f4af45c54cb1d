// Prefill attention by Hopper's own means, for head_dim 64 and 128: one warpgroup brings keys and
// values (one thread, by the tensor unit) and queries (three warps, which rotate them), two take 64
// rows each of a tile of one head. A warpgroup's softmax runs while its own product with the values
// before is under way. Blocks stay, and take one tile after another: what the next one needs is on
// its way before this one is done. The shape of this pipeline is that of Shah et al.,
// "FlashAttention-3", 2024.
#include "kernels/gpu_attention_hopper.cuh"
#include "kernels/gpu_attention_kernels.cuh"
#include "kernels/gpu_attention_maps.h"
#include "kernels/gpu_attention_mma.cuh"

namespace weft::kernels::gpu {
namespace {

constexpr int kThreads = 384;
constexpr int kBlock = static_cast<int>(kKvBlockTokens);
constexpr int kKeys = 128;    // of a step
constexpr int kRing = 2;      // steps in shared memory, and tiles' queries
constexpr int kLoaders = 96;  // threads that bring queries
constexpr int kConsumerWarps = 8;
static_assert(kGpuTileRows == 128, "two warpgroups of 64 rows");

template <class T>
struct WgmmaArgs {
  const T* q;  // [tokens, n_heads, D], rows q_stride apart
  GpuRows rows;
  const GpuTile* tiles;  // [n_tiles]
  int n_tiles;
  int n_heads;
  int group;
  size_t q_stride;
  size_t window;
  float c;            // scale · log2 e
  const float* rope;  // [context, D / 2, 2], or null where q is rotated already
  T* out;             // [tokens, n_heads, D]
};

template <int D>
struct Layout {
  static constexpr int kPanels = D / 64;
  static constexpr int kPanelBytes = 128 * 128;  // of 128 rows or keys
  static constexpr int kPlaneBytes = kPanels * kPanelBytes;
  static constexpr int kBoxBytes = kBlock * 128;
  static constexpr int kKeysAt = kRing * kPlaneBytes;  // behind q
  static constexpr int kValuesAt = kKeysAt + kRing * kPlaneBytes;
  static constexpr int kBarriersAt = kValuesAt + kRing * kPlaneBytes;
  static constexpr int kItemsAt = kBarriersAt + 3 * kRing * 2 * 8;
  static constexpr size_t kBytes = kItemsAt + kRing * 32 + 1024;  // to be aligned to 1,024
};

// Barriers of a ring of queries, of keys or of values.
struct Ring {
  uint32_t at;
  __device__ uint32_t full(int step) const { return at + step % kRing * 8; }
  __device__ uint32_t empty(int step) const { return at + (kRing + step % kRing) * 8; }
  __device__ static uint32_t parity(int step) { return static_cast<uint32_t>(step / kRing) & 1; }
};

// A tile of one head.
struct Work {
  GpuTile tile;
  int head;
  int kv;
  int first;        // position of the first row
  int block_begin;  // cache blocks with visible keys
  int block_end;
  const int32_t* table;
  __device__ int steps() const { return (block_end - block_begin + 1) / 2; }
};

// What those who multiply need to know of it; steps 0 ends their work.
struct Item {
  int first_row, n_rows, head;
  int first, key_begin, key_end;  // positions
  int steps;
  __device__ int key(int step) const { return key_begin + step * kKeys; }
};
static_assert(sizeof(Item) <= 32);

// The tiles of a block: the longest contexts first, to and fro over the blocks, so that each has as
// much to do; heads side by side.
template <class T>
struct TileTurns {
  const WgmmaArgs<T>& a;
  int round = 0;

  // False once there is none.
  __device__ bool next(Work& w) {
    const int n_blocks = static_cast<int>(gridDim.x), block = static_cast<int>(blockIdx.x);
    for (;; ++round) {
      const int id = round * n_blocks + (round % 2 == 0 ? block : n_blocks - 1 - block);
      if (id >= a.n_heads * a.n_tiles) return false;
      w.head = id % a.n_heads;
      w.kv = w.head / a.group;
      w.tile = a.tiles[a.n_tiles - 1 - id / a.n_heads];
      if (w.tile.n_rows > 0) break;
    }
    ++round;
    w.first = a.rows.positions[w.tile.first_row];
    w.block_begin = first_visible(w.first, a.window) / kBlock;
    w.block_end = (w.first + w.tile.n_rows + kBlock - 1) / kBlock;
    w.table = a.rows.block_table +
              static_cast<size_t>(a.rows.sequence[w.tile.first_row]) * a.rows.table_stride;
    return true;
  }
};

template <int D>
__device__ void send(const CUtensorMap& map, const Work& w, int step_of_tile, int step,
                     uint32_t plane, const Ring& ring) {
  using L = Layout<D>;
  const int block = w.block_begin + 2 * step_of_tile, n = min(2, w.block_end - block);
  barrier_wait(ring.empty(step), Ring::parity(step) ^ 1);
  barrier_arrive_for_bytes(ring.full(step), static_cast<uint32_t>(n * L::kPanels * L::kBoxBytes));
  plane += step % kRing * L::kPlaneBytes;
  for (int b = 0; b < n; ++b)
    for (int panel = 0; panel < L::kPanels; ++panel)
      copy_box(plane + panel * L::kPanelBytes + b * L::kBoxBytes, &map, panel * 64, 0, w.kv,
               w.table[block + b], ring.full(step));
}

// Queries of one tile after another, by kLoaders threads: eight elements of a head's lower half at
// a time, and their partners of the upper half; zeros beyond the tile.
template <class T, int D>
__device__ void bring_queries(const WgmmaArgs<T>& a, std::byte* shared, const Ring& ring) {
  using L = Layout<D>;
  constexpr int kPieces = D / 16;
  const int thread = static_cast<int>(threadIdx.x) - 32;
  auto* items = reinterpret_cast<Item*>(shared + L::kItemsAt);
  TileTurns<T> turns{a};
  Work w{};
  for (int n = 0;; ++n) {
    const bool any = turns.next(w);
    barrier_wait(ring.empty(n), Ring::parity(n) ^ 1);
    if (thread == 0)
      items[n % kRing] = {
          w.tile.first_row,        w.tile.n_rows,      w.head, w.first, w.block_begin * kBlock,
          w.first + w.tile.n_rows, any ? w.steps() : 0};
    std::byte* const q = shared + n % kRing * L::kPlaneBytes;
    const auto place = [&](int r, int piece) {
      return reinterpret_cast<uint4*>(q + piece / 8 * L::kPanelBytes + r * 128 +
                                      (piece % 8 ^ r % 8) * 16);
    };
#pragma unroll 1
    for (int i = thread; any && i < 128 * kPieces; i += kLoaders) {
      const int r = i / kPieces, piece = i % kPieces;
      uint4 low = make_uint4(0, 0, 0, 0), high = low;
      if (r < w.tile.n_rows) {
        const T* from = a.q + static_cast<size_t>(w.tile.first_row + r) * a.q_stride +
                        static_cast<size_t>(w.head * D + piece * 8);
        low = *reinterpret_cast<const uint4*>(from);
        high = *reinterpret_cast<const uint4*>(from + D / 2);
        if (a.rope != nullptr) {
          const auto* by = reinterpret_cast<const float4*>(
              a.rope + static_cast<size_t>(w.first + r) * D + piece * 16);
          rotate_pairs<T>(low.x, high.x, by[0]);
          rotate_pairs<T>(low.y, high.y, by[1]);
          rotate_pairs<T>(low.z, high.z, by[2]);
          rotate_pairs<T>(low.w, high.w, by[3]);
        }
      }
      *place(r, piece) = low;
      *place(r, piece + kPieces) = high;
    }
    fence_for_async();
    barrier_arrive(ring.full(n));
    if (!any) return;
  }
}

// One warpgroup's 64 rows. All is inlined: its arrays are registers.
template <class T, int D>
class Consumer {
 public:
  using L = Layout<D>;

  __device__ __forceinline__ Consumer(const WgmmaArgs<T>& args, int warpgroup, uint32_t shared,
                                      Ring queries, Ring keys, Ring values)
      : a_(args),
        warpgroup_(warpgroup),
        q_(shared + warpgroup * 64 * 128),
        k_(shared + L::kKeysAt),
        v_(shared + L::kValuesAt),
        queries_(queries),
        keys_(keys),
        values_(values) {
    const int thread = static_cast<int>(threadIdx.x % 128);
    row_ = warpgroup * 64 + thread / 32 * 16 + thread % 32 / 4;
    column_ = thread % 4 * 2;
  }

  __device__ __forceinline__ void run(std::byte* shared) {
    const auto* items = reinterpret_cast<const Item*>(shared + L::kItemsAt);
    for (int n = 0;; ++n) {
      barrier_wait(queries_.full(n), Ring::parity(n));
      w_ = items[n % kRing];
      __syncwarp();  // one lane says for all that the item has been read
      if (w_.steps == 0) return;
      take(shared, q_ + n % kRing * L::kPlaneBytes, queries_.empty(n));
      step_ += w_.steps;
    }
  }

 private:
  // One tile, whose queries are read no more once `done` has been arrived at.
  __device__ __forceinline__ void take(std::byte* shared, uint32_t q, uint32_t done) {
    const int n = w_.steps;
#pragma unroll
    for (int i = 0; i < D / 2; ++i) o_[i] = 0;
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      max_[j] = -INFINITY;
      sum_[j] = 0;
    }
    float rescale[2];
    barrier_wait(keys_.full(step_), Ring::parity(step_));
    multiply_keys(q, step_);
    wgmma_wait<0>();
    settle(s_);
    release(keys_.empty(step_));
    if (n == 1) release(done);
    soften(0, rescale);
    pack_probabilities();
    for (int i = 1; i < n; ++i) {
      const int step = step_ + i;
      barrier_wait(keys_.full(step), Ring::parity(step));
      multiply_keys(q, step);
      barrier_wait(values_.full(step - 1), Ring::parity(step - 1));
      multiply_values(step - 1);
      wgmma_wait<1>();
      settle(s_);
      release(keys_.empty(step));
      if (i + 1 == n) release(done);
      soften(i, rescale);
      wgmma_wait<0>();
      settle(o_);
      release(values_.empty(step - 1));
#pragma unroll
      for (int j = 0; j < D / 2; ++j) o_[j] *= rescale[j / 2 % 2];
      pack_probabilities();
    }
    const int last = step_ + n - 1;
    barrier_wait(values_.full(last), Ring::parity(last));
    clear_values_behind(shared, last);
    multiply_values(last);
    wgmma_wait<0>();
    settle(o_);
    release(values_.empty(last));
    store();
  }

  __device__ __forceinline__ void multiply_keys(uint32_t q, int step) {
    const uint32_t k = k_ + step % kRing * L::kPlaneBytes;
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < D / 16; ++i) {
      const uint32_t at = i / 4 * L::kPanelBytes + i % 4 * 32;
      wgmma_scores<T>(s_, operand(q + at, 0, 1024), operand(k + at, 0, 1024), i != 0);
    }
    wgmma_commit();
  }

  __device__ __forceinline__ void multiply_values(int step) {
    const uint32_t v = v_ + step % kRing * L::kPlaneBytes;
    wgmma_fence();
#pragma unroll
    for (int i = 0; i < kKeys / 16; ++i)
      wgmma_values<T, D>(o_, p_[i], operand(v + i * 16 * 128, L::kPanelBytes, 1024));
    wgmma_commit();
  }

  __device__ __forceinline__ void release(uint32_t barrier) const {
    if (threadIdx.x % 32 == 0) barrier_arrive(barrier);
  }

  __device__ __forceinline__ void mask(int key) {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int position = w_.first + row_ + j * 8;
      const int begin = first_visible(position, a_.window) - key - column_;
      const int end = position + 1 - key - column_;
#pragma unroll
      for (int i = 0; i < kKeys / 8; ++i)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int at = i * 8 + e;
          if (at < begin || at >= end) s_[i * 4 + j * 2 + e] = -INFINITY;
        }
    }
  }

  // s → probabilities; what was summed before is to be scaled by `rescale`.
  __device__ __forceinline__ void soften(int step, float (&rescale)[2]) {
    const int key = w_.key(step), lowest = w_.first + warpgroup_ * 64;
    if (key + kKeys > lowest + 1 || key < first_visible(lowest + 63, a_.window)) mask(key);
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      float most = max_[j];
#pragma unroll
      for (int i = 0; i < kKeys / 8; ++i)
        most = fmaxf(most, fmaxf(s_[i * 4 + j * 2], s_[i * 4 + j * 2 + 1]));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 1));
      most = fmaxf(most, __shfl_xor_sync(~0u, most, 2));
      const float base = most == -INFINITY ? 0 : most;
      rescale[j] = exp2_fast((max_[j] - base) * a_.c);
      max_[j] = most;
      const float shift = -base * a_.c;
      float sum = 0;
#pragma unroll
      for (int i = 0; i < kKeys / 8; ++i)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          float& x = s_[i * 4 + j * 2 + e];
          x = exp2_fast(fmaf(x, a_.c, shift));
          sum += x;
        }
      sum_[j] = sum_[j] * rescale[j] + sum;
    }
  }

  // An accumulator's columns 16 i … 16 i + 15 are the A operand of keys 16 i ….
  __device__ __forceinline__ void pack_probabilities() {
#pragma unroll
    for (int i = 0; i < kKeys / 16; ++i)
#pragma unroll
      for (int r = 0; r < 4; ++r) p_[i][r] = pack<T>(s_[i * 8 + r * 2], s_[i * 8 + r * 2 + 1]);
  }

  // What lies behind the last key may be NaN, which a probability of zero does not hide.
  __device__ __forceinline__ void clear_values_behind(std::byte* shared, int step) const {
    const int begin = w_.key_end - w_.key(w_.steps - 1);
    if (begin >= kKeys) return;
    std::byte* v = shared + L::kValuesAt + step % kRing * L::kPlaneBytes;
    const int pieces = (kKeys - begin) * 8;
    for (int i = static_cast<int>(threadIdx.x) - 128; i < pieces * L::kPanels; i += 256)
      *reinterpret_cast<uint4*>(v + i / pieces * L::kPanelBytes + begin * 128 + i % pieces * 16) =
          make_uint4(0, 0, 0, 0);
    fence_for_async();
    named_barrier(3, 256);
  }

  __device__ __forceinline__ void store() {
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      sum_[j] += __shfl_xor_sync(~0u, sum_[j], 1);
      sum_[j] += __shfl_xor_sync(~0u, sum_[j], 2);
      const int r = row_ + j * 8;
      if (r >= w_.n_rows) continue;
      const float inverse = 1 / sum_[j];
      T* out = a_.out + (static_cast<size_t>(w_.first_row + r) * static_cast<size_t>(a_.n_heads) +
                         static_cast<size_t>(w_.head)) *
                            D;
#pragma unroll
      for (int i = 0; i < D / 8; ++i)
        *reinterpret_cast<uint32_t*>(out + i * 8 + column_) =
            pack<T>(o_[i * 4 + j * 2] * inverse, o_[i * 4 + j * 2 + 1] * inverse);
    }
  }

  const WgmmaArgs<T>& a_;
  Item w_;
  int warpgroup_;
  uint32_t q_, k_, v_;  // shared memory
  Ring queries_, keys_, values_;
  int step_ = 0;  // of all tiles' steps, the first of this one
  int row_;       // of the tile; the thread has it and the eighth after it
  int column_;    // the first of each 8 that the thread has
  float s_[kKeys / 2];
  uint32_t p_[kKeys / 16][4];
  float o_[D / 2];
  float max_[2];
  float sum_[2];  // the thread's share
};

template <class T, int D>
__global__ void __launch_bounds__(kThreads, 1)
    wgmma_kernel(const __grid_constant__ CUtensorMap key_map,
                 const __grid_constant__ CUtensorMap value_map,
                 const __grid_constant__ WgmmaArgs<T> a) {
  using L = Layout<D>;
  extern __shared__ std::byte dynamic[];
  std::byte* shared = dynamic + (1024 - shared_address(dynamic) % 1024) % 1024;
  const uint32_t base = shared_address(shared);
  constexpr int kRingBytes = 2 * kRing * 8;
  const Ring queries{base + L::kBarriersAt}, keys{queries.at + kRingBytes},
      values{keys.at + kRingBytes};
  if (threadIdx.x == 0) {
    for (int i = 0; i < kRing; ++i) {
      barrier_init(queries.full(i), kLoaders);
      barrier_init(keys.full(i), 1);
      barrier_init(values.full(i), 1);
      for (const Ring& ring : {queries, keys, values}) barrier_init(ring.empty(i), kConsumerWarps);
    }
    fence_for_async();
  }
  __syncthreads();
  wait_for_kernel_before();

  if (threadIdx.x < 128) {
    give_registers_back<56>();
    if (threadIdx.x >= 32) bring_queries<T, D>(a, shared, queries);
    if (threadIdx.x > 0) return;
    TileTurns<T> turns{a};
    Work work{};
    for (int step = 0; turns.next(work); step += work.steps())
      for (int i = 0; i < work.steps(); ++i) {
        send<D>(key_map, work, i, step + i, base + L::kKeysAt, keys);
        send<D>(value_map, work, i, step + i, base + L::kValuesAt, values);
      }
  } else {
    take_registers<224>();
    Consumer<T, D>(a, static_cast<int>(threadIdx.x / 128) - 1, base, queries, keys, values)
        .run(shared);
  }
}

template <class T, int D>
bool prefill(const GpuAttention& g, CudaStream stream) {
  CUtensorMap keys, values;
  if (!map_planes(g, kBlock, keys, values)) return false;
  WgmmaArgs<T> a{};
  a.q = g.q.as<T>();
  a.rows = g.rows;
  a.tiles = g.tiles;
  a.n_tiles = static_cast<int>(g.n_tiles);
  a.n_heads = static_cast<int>(g.n_heads);
  a.group = static_cast<int>(g.n_heads / g.n_kv_heads);
  a.q_stride = g.q_stride;
  a.window = g.window;
  a.c = g.scale * kLog2E;
  a.rope = g.tile_rope;
  a.out = g.out.as<T>();
  const auto blocks = std::min<size_t>(g.n_heads * g.n_tiles, multiprocessors());
  launch("gpu_attention wgmma", wgmma_kernel<T, D>, static_cast<unsigned>(blocks), kThreads,
         Layout<D>::kBytes, stream, g.dependent_launch, keys, values, a);
  return true;
}

}  // namespace

bool attention_prefill_wgmma(const GpuAttention& g, CudaStream stream) {
  bool taken = false;
  with_gpu_type(g.q.dtype, [&](auto type) {
    using T = decltype(type);
    if constexpr (!std::is_same_v<T, float>)
      taken = g.head_dim == 64 ? prefill<T, 64>(g, stream) : prefill<T, 128>(g, stream);
  });
  return taken;
}

}  // namespace weft::kernels::gpu
