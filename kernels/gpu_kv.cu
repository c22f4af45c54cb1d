// QK norm, rotation and cache writes: one warp a head of a token. A lane holds neighbours of the
// lower half of the head and their partners in the upper half.
#include "kernels/gpu_kv.h"

#include "kernels/gpu_attention_launch.cuh"

namespace weft::kernels {
namespace {

using namespace gpu;

constexpr unsigned kWarps = 8;
constexpr size_t kMaxHeadDim = 256;

__device__ float load(const void* from, DType dtype, size_t i) {
  if (dtype == DType::bf16) return to_float(static_cast<const Bf16*>(from)[i]);
  if (dtype == DType::f16) return to_float(static_cast<const F16*>(from)[i]);
  return static_cast<const float*>(from)[i];
}

// V neighbours at once; both ends are aligned to V elements.
template <class T, int V>
struct alignas(V * sizeof(T)) Few {
  T value[V];
};

template <class T, int V>
__device__ void store_few(void* to, size_t i, const float (&x)[V]) {
  Few<T, V> few;
#pragma unroll
  for (int v = 0; v < V; ++v) few.value[v] = from_float<T>(x[v]);
  *reinterpret_cast<Few<T, V>*>(static_cast<T*>(to) + i) = few;
}

template <int V>
__device__ void store_as(void* to, DType dtype, size_t i, const float (&x)[V]) {
  if (dtype == DType::bf16) return store_few<Bf16, V>(to, i, x);
  if (dtype == DType::f16) return store_few<F16, V>(to, i, x);
  store_few<float, V>(to, i, x);
}

// One head in a warp's registers: lane l holds units l, l + 32, … of V elements of each half.
template <class T, int V>
struct Head {
  static constexpr int kUnits = kMaxHeadDim / 2 / V / 32;
  float low[kUnits][V];
  float high[kUnits][V];

  __device__ static float rounded(float x) { return to_float(from_float<T>(x)); }

  template <class F>
  __device__ static void each(int half, F&& f) {
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      const int i = (u * 32 + lane) * V;
      if (i < half) f(u, i);
    }
  }

  __device__ void load(const T* head, int half) {
    each(half, [&](int u, int i) {
      const auto x = *reinterpret_cast<const Few<T, V>*>(head + i);
      const auto y = *reinterpret_cast<const Few<T, V>*>(head + half + i);
#pragma unroll
      for (int v = 0; v < V; ++v) {
        low[u][v] = to_float(x.value[v]);
        high[u][v] = to_float(y.value[v]);
      }
    });
  }

  __device__ void store(void* head, DType dtype, int half) const {
    each(half, [&](int u, int i) {
      store_as<V>(head, dtype, i, low[u]);
      store_as<V>(head, dtype, half + i, high[u]);
    });
  }

  __device__ void normalise(const In& weight, float eps, int half) {
    float sum = 0;
    each(half, [&](int u, int) {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        sum = __fmaf_rn(low[u][v], low[u][v], sum);
        sum = __fmaf_rn(high[u][v], high[u][v], sum);
      }
    });
#pragma unroll
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(~0u, sum, step);
    const float inverse = 1 / sqrtf(sum / static_cast<float>(2 * half) + eps);
    const auto scaled = [&](float x, int i) {
      return rounded(
          __fmul_rn(rounded(__fmul_rn(x, inverse)), kernels::load(weight.data, weight.dtype, i)));
    };
    each(half, [&](int u, int i) {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        low[u][v] = scaled(low[u][v], i + v);
        high[u][v] = scaled(high[u][v], half + i + v);
      }
    });
  }

  // As kernels/rope.cpp: products and sums rounded on their own, results to T whatever the cache's
  // type is.
  __device__ void rotate(const float* pairs, int half) {  // [half, 2]
    each(half, [&](int u, int i) {
#pragma unroll
      for (int v = 0; v < V; ++v) {
        const float2 pair = reinterpret_cast<const float2*>(pairs)[i + v];
        const float x = low[u][v], y = high[u][v];
        low[u][v] = rounded(__fsub_rn(__fmul_rn(x, pair.x), __fmul_rn(y, pair.y)));
        high[u][v] = rounded(__fadd_rn(__fmul_rn(y, pair.x), __fmul_rn(x, pair.y)));
      }
    });
  }
};

template <class T, int V>
__global__ void __launch_bounds__(32 * kWarps) qkv_post_kernel(const GpuQkvPost a) {
  wait_for_kernel_before();
  const size_t first = a.leaves_q ? a.n_heads : 0, heads = a.n_heads + 2 * a.n_kv_heads - first;
  const size_t item = size_t{blockIdx.x} * kWarps + threadIdx.x / 32;
  const size_t t = item / heads, h = first + item % heads;
  if (t >= a.rows.tokens) return;
  const int position = a.rows.positions[t];
  if (position < 0) return;
  const int half = static_cast<int>(a.head_dim / 2);
  T* const at = static_cast<T*>(a.qkv.data) + t * a.stride + h * a.head_dim;
  const bool is_q = h < a.n_heads, is_v = h >= a.n_heads + a.n_kv_heads;

  Head<T, V> head;
  head.load(at, half);
  if (!is_v) {
    const In& weight = is_q ? a.q_norm : a.k_norm;
    if (weight.data != nullptr) head.normalise(weight, a.eps, half);
    head.rotate(a.rope + static_cast<size_t>(position) * a.head_dim, half);
  }
  if (is_q) return head.store(at, a.qkv.dtype, half);

  const size_t column = static_cast<size_t>(position) / kKvBlockTokens;
  const int64_t id = a.rows.block_table[a.rows.sequence[t] * a.rows.table_stride + column];
  if (id < 0) return;
  const size_t element = static_cast<size_t>(position) % kKvBlockTokens * a.head_dim;
  std::byte* block = a.cache.base + id * a.cache.block_stride;
  const auto g = static_cast<int64_t>(h - a.n_heads - (is_v ? a.n_kv_heads : 0));
  const DType dtype = is_v ? a.cache.value : a.cache.key;
  block +=
      is_v ? a.cache.value_offset + g * a.cache.value_head_stride : g * a.cache.key_head_stride;
  head.store(block + element * (dtype == DType::f32 ? 4 : 2), dtype, half);
}

}  // namespace

void gpu_qkv_post(const GpuQkvPost& a, CudaStream stream) {
  expect(a.head_dim > 0 && a.head_dim % 2 == 0 && a.head_dim <= kMaxHeadDim,
         "gpu_qkv_post: head_dim must be even and at most 256");
  expect(a.stride >= (a.n_heads + 2 * a.n_kv_heads) * a.head_dim && a.stride % 2 == 0,
         "gpu_qkv_post: stride must be even and hold a row");
  if (a.rows.tokens == 0) return;
  const size_t items = a.rows.tokens * ((a.leaves_q ? 0 : a.n_heads) + 2 * a.n_kv_heads);
  const auto grid = static_cast<unsigned>((items + kWarps - 1) / kWarps);
  with_gpu_type(a.qkv.dtype, [&](auto type) {
    using T = decltype(type);
    const auto kernel = a.head_dim % 4 == 0 ? qkv_post_kernel<T, 2> : qkv_post_kernel<T, 1>;
    launch("gpu_qkv_post", kernel, grid, 32 * kWarps, 0, stream, a.dependent_launch, a);
  });
}

}  // namespace weft::kernels
