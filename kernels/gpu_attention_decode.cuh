// Decode attention: the work items are parts of a row's context for one KV head, and a warp takes
// one at a time with a ring of shared memory of its own, so no warp waits for another. A part is
// kSoftmaxSpan positions; where that leaves multiprocessors idle and bits may differ, less.
#pragma once

#include <algorithm>

#include "kernels/gpu_attention_decode_plan.cuh"
#include "kernels/gpu_attention_hopper.cuh"
#include "kernels/gpu_attention_kernels.cuh"
#include "kernels/gpu_attention_maps.h"
#include "kernels/gpu_attention_mma.cuh"

namespace weft::kernels::gpu {

// A warp's ring of steps, filled by its lanes. Beyond the last visible position stand zeros, for
// what lies there in the cache may be NaN.
template <class T, int D, int kStages>
class LaneRing {
 public:
  using Layout = PaddedRows<D>;
  static constexpr int kStageBytes = 2 * Layout::kPlaneBytes;
  static constexpr int kBytes = kStages * kStageBytes;

  __device__ LaneRing(const CUtensorMap&, const CUtensorMap&, const KvLayer& cache, uint32_t shared,
                      uint32_t)
      : cache_(cache), shared_(shared) {}

  // The next step into a stage; an empty group once there is none.
  __device__ void issue(DecodeCursor<T>& cursor, int stage) {
    if (!cursor.over()) {
      const std::byte* block =
          cache_.base + cursor.block() * cache_.block_stride + cursor.row() * (D * 2);
      copy(at(stage), block + cursor.kv() * cache_.key_head_stride, cursor.n_rows());
      copy(at(stage) + Layout::kPlaneBytes,
           block + cache_.value_offset + cursor.kv() * cache_.value_head_stride, cursor.n_rows());
      cursor.advance();
    }
    commit_copies();
  }
  __device__ uint32_t at(int stage) const { return shared_ + stage * kStageBytes; }
  // Until the oldest step has come.
  __device__ void wait(int) {
    wait_for_copies<kStages - 2>();
    __syncwarp();
  }
  __device__ void clear_behind(int, int) {}

 private:
  __device__ static void copy(uint32_t shared, const std::byte* from, int n_rows) {
    const int lane = static_cast<int>(threadIdx.x % 32);
    const bool whole = n_rows >= kStepKeys;
#pragma unroll
    for (int j = 0; j < D / 8; ++j) {
      const int piece = j * 32 + lane, row = piece / (D / 8);
      const uint32_t to = shared + row * kSharedRow<D> + piece % (D / 8) * 16;
      if (whole)
        copy_16(to, from + piece * 16);
      else
        copy_16_or_zero(to, from + (row < n_rows ? piece * 16 : 0), row < n_rows);
    }
  }

  const KvLayer& cache_;
  uint32_t shared_;
};

// The same filled by the tensor unit, which one lane asks.
template <class T, int D, int kStages>
class BoxRing {
 public:
  using Layout = SwizzledRows<D>;
  static constexpr int kStageBytes = 2 * Layout::kPlaneBytes;
  // Barriers behind the stages, of all warps' rings at multiples of 1,024.
  static constexpr int kBytes = kStages * kStageBytes;

  __device__ BoxRing(const CUtensorMap& keys, const CUtensorMap& values, const KvLayer&,
                     uint32_t shared, uint32_t barriers)
      : keys_(keys), values_(values), shared_(shared), barriers_(barriers) {
    if (threadIdx.x % 32 == 0) {
      for (int i = 0; i < kStages; ++i) barrier_init(barriers_ + i * 8, 1);
      fence_for_async();
    }
    __syncwarp();
  }

  __device__ void issue(DecodeCursor<T>& cursor, int stage) {
    if (cursor.over()) return;
    const int block = cursor.block();
    if (threadIdx.x % 32 == 0) {
      const uint32_t barrier = barriers_ + stage * 8;
      barrier_arrive_for_bytes(barrier, kStageBytes);
#pragma unroll
      for (int panel = 0; panel < D / 64; ++panel) {
        const uint32_t to = at(stage) + panel * Layout::kPanelBytes;
        copy_box_once(to, &keys_, panel * 64, cursor.row(), cursor.kv(), block, barrier);
        copy_box_once(to + Layout::kPlaneBytes, &values_, panel * 64, cursor.row(), cursor.kv(),
                      block, barrier);
      }
    }
    cursor.advance();
  }
  __device__ uint32_t at(int stage) const { return shared_ + stage * kStageBytes; }
  __device__ void wait(int stage) {
    barrier_wait(barriers_ + stage * 8, parity_);
    if (stage == kStages - 1) parity_ ^= 1;
    __syncwarp();
  }
  // Zeros for the values from row `n_rows` on: what lies there in the cache may be NaN.
  __device__ void clear_behind(int stage, int n_rows) {
    for (int i = static_cast<int>(threadIdx.x % 32); i < (kStepKeys - n_rows) * 8; i += 32)
#pragma unroll
      for (int panel = 0; panel < D / 64; ++panel)
        asm volatile("st.shared.v4.b32 [%0], {%1, %1, %1, %1};" ::"r"(
                         at(stage) + Layout::kPlaneBytes + panel * Layout::kPanelBytes +
                         n_rows * 128 + i * 16),
                     "r"(0)
                     : "memory");
    fence_for_async();
    __syncwarp();
  }

 private:
  const CUtensorMap& keys_;
  const CUtensorMap& values_;
  uint32_t shared_;
  uint32_t barriers_;
  uint32_t parity_ = 0;
};

// Columns of a tile are heads of the group; those beyond it are zeros and are not stored.
template <class T, int D, int NT>
__device__ void load_heads(const DecodeArgs<T>& a, const DecodeItem& it, size_t row_number,
                           Queries<T, D, NT>& q) {
  const T* row = a.q + row_number * a.q_stride;
#pragma unroll
  for (int nt = 0; nt < NT; ++nt) {
    const int head = (it.tile * NT + nt) * 8 + static_cast<int>(threadIdx.x % 32 / 4);
    q.load(nt, head < a.group ? row + static_cast<size_t>(it.kv * a.group + head) * D : nullptr);
  }
}

// A row's newest key and value: from their product into the step that has come without them, and
// into the cache.
template <class T, int D>
struct Newest {
  uint32_t k[2], v[2];  // two neighbours of each half of the head
  float4 by;
  std::byte* key;  // in the cache, of a position; null: not to be written
  std::byte* value;

  __device__ static int element() { return static_cast<int>(threadIdx.x % 32) * 2; }
  __device__ static bool idle() { return element() >= D / 2; }

  __device__ void load(const DecodeArgs<T>& a, const DecodeItem& it, const DecodeRows& rows) {
    if (idle()) return;
    const int position = it.end - 1, row = rows.row[it.i];
    by = reinterpret_cast<const float4*>(a.rope + static_cast<size_t>(position) * D)[element() / 2];
    const T* heads = a.q + static_cast<size_t>(row) * a.q_stride +
                     static_cast<size_t>(a.n_heads + it.kv) * D + element();
    read(k, heads);
    read(v, heads + static_cast<size_t>(a.n_kv_heads) * D);
    const int64_t block = a.rows.block_table[rows.sequence[it.i] * a.rows.table_stride +
                                             static_cast<size_t>(position) / kKvBlockTokens];
    key = value = nullptr;
    if (block < 0 || it.tile > 0) return;
    std::byte* at = a.cache.base + block * a.cache.block_stride +
                    (static_cast<size_t>(position) % kKvBlockTokens * D + element()) * 2;
    key = at + it.kv * a.cache.key_head_stride;
    value = at + a.cache.value_offset + it.kv * a.cache.value_head_stride;
  }

  // Into row `row` of a step of keys and values in shared memory.
  template <class Layout>
  __device__ void join(uint32_t keys, uint32_t values, int row) {
    if (idle()) return;
    rotate_pairs<T>(k[0], k[1], by);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const uint32_t place = Layout::place(row, element() + half * (D / 2));
      asm volatile("st.shared.b32 [%0], %1;" ::"r"(keys + place), "r"(k[half]) : "memory");
      asm volatile("st.shared.b32 [%0], %1;" ::"r"(values + place), "r"(v[half]) : "memory");
    }
    if (key == nullptr) return;
    write(key, k);
    write(value, v);
  }

 private:
  __device__ static void read(uint32_t (&to)[2], const T* from) {
    to[0] = *reinterpret_cast<const uint32_t*>(from);
    to[1] = *reinterpret_cast<const uint32_t*>(from + D / 2);
  }
  __device__ static void write(std::byte* to, const uint32_t (&from)[2]) {
    *reinterpret_cast<uint32_t*>(to) = from[0];
    *reinterpret_cast<uint32_t*>(to + D) = from[1];
  }
};

template <class T, int D, int NT>
__device__ void store_part(const DecodeArgs<T>& a, const DecodeItem& it, size_t row, bool alone,
                           const Partial<T, D, NT>& part) {
  const int lane = static_cast<int>(threadIdx.x % 32);
#pragma unroll
  for (int nt = 0; nt < NT; ++nt)
#pragma unroll
    for (int j = 0; j < 2; ++j) {
      const int in_group = (it.tile * NT + nt) * 8 + lane % 4 * 2 + j;
      if (in_group >= a.group) continue;
      const auto head = static_cast<size_t>(it.kv * a.group + in_group);
      const float inverse = __frcp_rn(part.sum[nt][j]);
      T* out = a.out + (row * static_cast<size_t>(a.n_heads) + head) * D;
      float* slot =
          a.parts +
          (static_cast<size_t>(it.part) * static_cast<size_t>(a.n_heads) + head) * kPartFloats<D>;
#pragma unroll
      for (int d = 0; d < D / 16; ++d)
#pragma unroll
        for (int e = 0; e < 2; ++e) {
          const int i = d * 16 + e * 8 + lane / 4;
          const float value = part.o[d][nt][e * 2 + j];
          if (alone)
            out[i] = from_float<T>(__fmul_rn(value, inverse));
          else
            slot[i] = value;
        }
      if (!alone && lane / 4 == 0)
        *reinterpret_cast<float2*>(slot + D) = make_float2(part.max[nt][j], part.sum[nt][j]);
    }
}

// A lane's share of a head: D / 32 neighbours.
template <int D>
struct alignas(D / 32 % 2 == 0 ? D / 8 : 4) Share {
  float value[D / 32];
};

template <template <class, int, int> class RingOf, class T, int D, int NT, int kWarps, int kStages>
struct DecodeShape {
  using Ring = RingOf<T, D, kStages>;
  static constexpr int kBarriersAt = kWarps * Ring::kBytes;
  static constexpr int kRowsAt = kBarriersAt + kWarps * kStages * 8;
  static size_t shared_bytes(int n_rows) {
    return kRowsAt + DecodeRows::bytes(n_rows) + 1024;  // to be aligned
  }
};

template <template <class, int, int> class RingOf, class T, int D, int NT, int kWarps, int kStages>
__global__ void __launch_bounds__(kWarps * 32, 1)
    decode_kernel(const __grid_constant__ CUtensorMap keys,
                  const __grid_constant__ CUtensorMap values,
                  const __grid_constant__ DecodeArgs<T> a) {
  using Shape = DecodeShape<RingOf, T, D, NT, kWarps, kStages>;
  using Ring = typename Shape::Ring;
  extern __shared__ std::byte dynamic[];
  std::byte* shared = dynamic + (1024 - shared_address(dynamic) % 1024) % 1024;
  const DecodeRows rows(shared + Shape::kRowsAt, a.n_single);

  // Positions, tables and old keys were there before the kernel before this one began.
  cudaTriggerProgrammaticLaunchCompletion();
  const int log_part = plan_parts(a, rows);
  const int warp = static_cast<int>(threadIdx.x / 32);
  const int grid = static_cast<int>(gridDim.x), stride = grid * kWarps;
  int item = warp * grid + static_cast<int>(blockIdx.x);
  Ring ring(keys, values, a.cache, shared_address(shared) + warp * Ring::kBytes,
            shared_address(shared) + Shape::kBarriersAt + warp * kStages * 8);
  DecodeCursor<T> cursor(a, rows, log_part, item, stride);
  Queries<T, D, NT> q, next_q;  // the next item's are asked for an item ahead
  Turns<D> next_turns;
  Newest<T, D> newest, next_newest;
  Partial<T, D, NT> part;
  DecodeItem it{}, next{};
  bool alone = true;  // may still run beside the kernel before
  for (int s = 0; s < kStages - 1; ++s) {
    if (alone && !cursor.is_old()) {
      cudaGridDependencySynchronize();
      alone = false;
    }
    ring.issue(cursor, s);
  }
  if (alone) cudaGridDependencySynchronize();
  if (blockIdx.x == 0)
    for (int i = static_cast<int>(threadIdx.x); i <= a.n_single; i += kWarps * 32)
      a.header->prefix[i] = rows.prefix[i];

  int full = 0, empty = kStages - 1;  // stages to compute and to fill next
  const auto look_ahead = [&](int at) {
    if (at >= cursor.n_items()) return;
    next = decode_item(a, rows, log_part, at);
    load_heads(a, next, static_cast<size_t>(rows.row[next.i]), next_q);
    if (a.rope == nullptr) return;
    next_turns.load(a.rope + static_cast<size_t>(rows.end[next.i] - 1) * D);
    if (next.end == rows.end[next.i]) next_newest.load(a, next, rows);
  };
  look_ahead(item);
  for (; item < cursor.n_items(); item += stride) {
    it = next;
    q = next_q;
    newest = next_newest;
    if (a.rope != nullptr) q.rotate(next_turns);
    look_ahead(item + stride);
    const bool has_newest = a.rope != nullptr && it.end == rows.end[it.i];
    part.clear();
    for (int at = it.begin / kStepKeys * kStepKeys; at < it.end; at += kStepKeys) {
      ring.wait(full);
      ring.issue(cursor, empty);
      empty = empty + 1 == kStages ? 0 : empty + 1;
      const uint32_t k = ring.at(full), v = k + Ring::Layout::kPlaneBytes;
      Visible<NT> visible;
#pragma unroll
      for (int nt = 0; nt < NT; ++nt)
#pragma unroll
        for (int j = 0; j < 2; ++j) {
          visible.begin[nt][j] = it.begin - at;
          visible.end[nt][j] = it.end - at;
        }
      if (has_newest && at + kStepKeys >= it.end) {
        newest.template join<typename Ring::Layout>(k, v, it.end - 1 - at);
        ring.clear_behind(full, it.end - at);
        __syncwarp();
      } else if (at + kStepKeys > it.end) {
        ring.clear_behind(full, it.end - at);
      }
      if (at < it.begin || at + kStepKeys > it.end)
        part.template add<true, typename Ring::Layout>(q, k, v, visible, a.c);
      else
        part.template add<false, typename Ring::Layout>(q, k, v, visible, a.c);
      full = full + 1 == kStages ? 0 : full + 1;
    }
    part.finish();
    const auto row = static_cast<size_t>(rows.row[it.i]);
    const bool alone = rows.prefix[it.i + 1] - rows.prefix[it.i] == 1;
    store_part(a, it, row, alone, part);
  }
}

// Parts of a row in order, one warp a head; a lane has D / 32 neighbours of kAtOnce parts on their
// way.
template <class T, int D, int kAtOnce>
__global__ void __launch_bounds__(128) merge_kernel(const __grid_constant__ DecodeArgs<T> a) {
  wait_for_kernel_before();
  const int item = static_cast<int>(blockIdx.x * 4 + threadIdx.x / 32);
  const int lane = static_cast<int>(threadIdx.x % 32);
  const int i = item / a.n_heads, head = item % a.n_heads;
  if (i >= a.n_single) return;
  const int begin = a.header->prefix[i], end = a.header->prefix[i + 1];
  if (end - begin < 2) return;  // stored already, or padding

  constexpr int kEach = D / 32;
  const size_t stride = static_cast<size_t>(a.n_heads) * kPartFloats<D>;
  const float* slots =
      a.parts + static_cast<size_t>(begin) * stride + static_cast<size_t>(head) * kPartFloats<D>;
  float total[kEach] = {}, sum = 0, running_max = -INFINITY;
  for (int base = 0; base < end - begin; base += 32, slots += 32 * stride) {
    const int n = min(32, end - begin - base);
    Share<D> part[kAtOnce];
    const auto fetch = [&](int first) {
#pragma unroll
      for (int p = 0; p < kAtOnce; ++p)
        if (first + p < n)
          part[p] = *reinterpret_cast<const Share<D>*>(
              slots + static_cast<size_t>(first + p) * stride + lane * kEach);
    };
    float2 own = make_float2(-INFINITY, 0);
    if (lane < n)
      own = *reinterpret_cast<const float2*>(slots + static_cast<size_t>(lane) * stride + D);
    fetch(0);            // beside the scores, not after them
    float upto = own.x;  // largest score of the parts before and this lane's
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
      const float left = __shfl_up_sync(~0u, upto, step);
      if (lane >= step) upto = fmaxf(upto, left);
    }
    upto = fmaxf(upto, running_max);
    const float left = __shfl_up_sync(~0u, upto, 1);
    const MergeWeights weights = merge_weights(lane == 0 ? running_max : left, own.x, a.c);
    running_max = __shfl_sync(~0u, upto, 31);
    for (int first = 0; first < n; first += kAtOnce) {
      if (first > 0) fetch(first);
#pragma unroll
      for (int p = 0; p < kAtOnce; ++p) {
        if (first + p >= n) break;
        const MergeWeights w{__shfl_sync(~0u, weights.old, first + p),
                             __shfl_sync(~0u, weights.now, first + p)};
        sum = merged(sum, __shfl_sync(~0u, own.y, first + p), w);
#pragma unroll
        for (int e = 0; e < kEach; ++e) total[e] = merged(total[e], part[p].value[e], w);
      }
    }
  }
  const size_t row = static_cast<size_t>(a.single == nullptr ? i : a.single[i]);
  T* out = a.out + (row * static_cast<size_t>(a.n_heads) + static_cast<size_t>(head)) * D;
  const float inverse = __frcp_rn(sum);
#pragma unroll
  for (int e = 0; e < kEach; ++e)
    out[lane * kEach + e] = from_float<T>(__fmul_rn(total[e], inverse));
}

template <template <class, int, int> class RingOf, class T, int D, int NT, int kWarps, int kStages>
void launch_decode(const GpuAttention& g, const DecodeArgs<T>& a, const CUtensorMap& keys,
                   const CUtensorMap& values, CudaStream stream) {
  using Shape = DecodeShape<RingOf, T, D, NT, kWarps, kStages>;
  const size_t part = a.whole_parts ? kSoftmaxSpan : size_t{1} << kLogShortest;
  const size_t items = static_cast<size_t>(a.n_single) * (g.max_context / part + 2) *
                       static_cast<size_t>(a.n_kv_heads * a.head_tiles);
  const auto grid = static_cast<unsigned>(std::min<size_t>(items, multiprocessors()));
  launch("gpu_attention decode", decode_kernel<RingOf, T, D, NT, kWarps, kStages>, grid,
         kWarps * 32, Shape::shared_bytes(a.n_single), stream, g.dependent_launch, keys, values, a);
  if (g.max_context <= part) return;
  const size_t warps = static_cast<size_t>(a.n_single) * g.n_heads;
  // Many rows have few parts each, and warps enough.
  const auto merge = warps > 2048 ? merge_kernel<T, D, 4> : merge_kernel<T, D, 16>;
  launch("gpu_attention merge", merge, static_cast<unsigned>((warps + 3) / 4), 128, 0, stream, true,
         a);
}

// Pointers of rows [first, first + n) of the single rows.
template <class T>
DecodeArgs<T> decode_args(const GpuAttention& g, size_t first, size_t n, int columns) {
  DecodeArgs<T> a{};
  a.cache = g.cache;
  a.rows = g.rows;
  a.n_single = static_cast<int>(n);
  a.n_heads = static_cast<int>(g.n_heads);
  a.n_kv_heads = static_cast<int>(g.n_kv_heads);
  a.group = a.n_heads / a.n_kv_heads;
  a.head_tiles = (a.group + columns - 1) / columns;
  a.q_stride = g.q_stride;
  a.window = g.window;
  a.rope = g.rope;
  a.c = g.scale * kLog2E;
  a.whole_parts = g.invariant || n * static_cast<size_t>(a.n_kv_heads * a.head_tiles) >= 256;
  a.q = g.q.as<T>();
  a.out = g.out.as<T>();
  if (g.single != nullptr) {
    a.single = g.single + first;
  } else {  // rows first, first + 1, …: shift the arrays
    a.rows.positions += first;
    a.rows.sequence += first;
    a.q += first * g.q_stride;
    a.out += first * g.n_heads * g.head_dim;
  }
  a.header = reinterpret_cast<DecodeHeader*>(g.workspace);
  a.parts = reinterpret_cast<float*>(g.workspace + kDecodeHeaderBytes);
  return a;
}

}  // namespace weft::kernels::gpu
