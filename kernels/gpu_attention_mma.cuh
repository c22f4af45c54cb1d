// The step that decode and invariant prefill share, so that a row gets the same bits from both: a
// warp takes 32 keys and values from shared memory against NT tiles of 8 query columns, by
// mma.m16n8k16 throughout. Scores stand as S' = K Q' and sums as O' = V' P', so a group of up to 8
// query heads fills an instruction's 8 columns.
//
// Layout of an accumulator of 16 rows by 8 columns: lane l has rows l / 4 and l / 4 + 8, columns
// 2 (l % 4) and the next.
#pragma once

#include "kernels/attention.h"
#include "kernels/gpu_attention_launch.cuh"

namespace weft::kernels::gpu {

inline constexpr int kStepKeys = 32;

// How kStepKeys rows of keys or values lie in shared memory. Rows an odd number of 16-byte pieces
// apart: 8 successive rows lie in different banks.
template <int D>
inline constexpr int kSharedRow = (D / 8 % 2 == 0 ? D / 8 + 1 : D / 8) * 16;
template <int D>
struct PaddedRows {
  static constexpr int kPlaneBytes = kStepKeys * kSharedRow<D>;
  uint32_t lane;
  // Piece `piece` of row `row`, plus pairs of pieces and blocks of 16 rows that at() names.
  __device__ PaddedRows(int row, int piece) : lane(row * kSharedRow<D> + piece * 16) {}
  __device__ uint32_t at(int half, int pair) const {
    return lane + half * 16 * kSharedRow<D> + pair * 32;
  }
  __device__ static uint32_t place(int row, int element) {
    return row * kSharedRow<D> + element * 2;
  }
};

// As the tensor unit leaves boxes of 64 elements a row: gpu_attention_hopper.cuh.
template <int D>
struct SwizzledRows {
  static constexpr int kPanelBytes = kStepKeys * 128;
  static constexpr int kPlaneBytes = D / 64 * kPanelBytes;
  uint32_t lane[4];
  __device__ SwizzledRows(int row, int piece) {
#pragma unroll
    for (int pair = 0; pair < 4; ++pair)
      lane[pair] = row * 128 + ((pair * 2 + piece) ^ row % 8) * 16;
  }
  __device__ uint32_t at(int half, int pair) const {
    return lane[pair % 4] + half * 16 * 128 + pair / 4 * kPanelBytes;
  }
  __device__ static uint32_t place(int row, int element) {
    return element / 64 * kPanelBytes + row * 128 + (element % 64 / 8 ^ row % 8) * 16 +
           element % 8 * 2;
  }
};

__device__ inline uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

// Two floats as one register, the first in its lower half.
template <class T>
__device__ uint32_t pack(float first, float second);
template <>
__device__ inline uint32_t pack<Bf16>(float first, float second) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}
template <>
__device__ inline uint32_t pack<F16>(float first, float second) {
  uint32_t pair;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(second), "f"(first));
  return pair;
}

template <class T>
__device__ void multiply_add(float (&c)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1);
template <>
__device__ inline void multiply_add<Bf16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                          uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}
template <>
__device__ inline void multiply_add<F16>(float (&c)[4], const uint32_t (&a)[4], uint32_t b0,
                                         uint32_t b1) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, "
      "{%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
}

__device__ inline void load_matrices(uint32_t (&m)[4], uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(shared)
               : "memory");
}
__device__ inline void load_matrices_transposed(uint32_t (&m)[4], uint32_t shared) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0,%1,%2,%3}, [%4];"
               : "=r"(m[0]), "=r"(m[1]), "=r"(m[2]), "=r"(m[3])
               : "r"(shared)
               : "memory");
}
__device__ inline uint32_t transpose(uint32_t matrix) {
  uint32_t out;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(out) : "r"(matrix));
  return out;
}

// 2^x, flushed to zero below the normal range.
__device__ inline float exp2_fast(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}

// 16 bytes into shared memory, or zeros where there are no source bytes.
__device__ inline void copy_16(uint32_t shared, const std::byte* from) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16;" ::"r"(shared), "l"(from)
               : "memory");
}
__device__ inline void copy_16_or_zero(uint32_t shared, const std::byte* from, bool there) {
  asm volatile("cp.async.cg.shared.global.L2::128B [%0], [%1], 16, %2;" ::"r"(shared), "l"(from),
               "r"(there ? 16 : 0)
               : "memory");
}
__device__ inline void commit_copies() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int N>
__device__ void wait_for_copies() {  // all groups but the last N
  asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

// Two neighbours of a head's lower half and their partners in the upper half, turned by `by`:
// cosine and sine of the first, then of the second. Rounded as kernels/rope.cpp and
// kernels/gpu_kv.cu do.
template <class T>
__device__ inline void rotate_pairs(uint32_t& low, uint32_t& high, float4 by) {
  T x[2], y[2];
  memcpy(x, &low, 4);
  memcpy(y, &high, 4);
  const float x0 = to_float(x[0]), x1 = to_float(x[1]), y0 = to_float(y[0]), y1 = to_float(y[1]);
  low = pack<T>(__fsub_rn(__fmul_rn(x0, by.x), __fmul_rn(y0, by.y)),
                __fsub_rn(__fmul_rn(x1, by.z), __fmul_rn(y1, by.w)));
  high = pack<T>(__fadd_rn(__fmul_rn(y0, by.x), __fmul_rn(x0, by.y)),
                 __fadd_rn(__fmul_rn(y1, by.z), __fmul_rn(x1, by.w)));
}

// What a lane needs to turn its queries: D / 16 times two neighbouring angles.
template <int D>
struct Turns {
  float4 by[D / 32][2];

  __device__ void load(const float* pairs) {  // of one position: [D / 2, 2]
    const auto* fours = reinterpret_cast<const float4*>(pairs) + threadIdx.x % 4;
#pragma unroll
    for (int k = 0; k < D / 32; ++k) {
      by[k][0] = fours[k * 8];
      by[k][1] = fours[k * 8 + 4];
    }
  }
};

// Query columns as the B operand: lane l has column l / 4 of each tile.
template <class T, int D, int NT>
struct Queries {
  uint32_t b[D / 16][NT][2];

  // `head` is this lane's column of tile nt: [D] in global memory, or null for zeros.
  __device__ void load(int nt, const T* head) {
    const auto* pairs = reinterpret_cast<const uint32_t*>(head) + threadIdx.x % 4;
#pragma unroll
    for (int k = 0; k < D / 16; ++k) {
      b[k][nt][0] = head == nullptr ? 0 : pairs[k * 8];
      b[k][nt][1] = head == nullptr ? 0 : pairs[k * 8 + 4];
    }
  }
  __device__ void rotate(const Turns<D>& turns) {
#pragma unroll
    for (int k = 0; k < D / 32; ++k)
#pragma unroll
      for (int nt = 0; nt < NT; ++nt)
#pragma unroll
        for (int j = 0; j < 2; ++j)
          rotate_pairs<T>(b[k][nt][j], b[k + D / 32][nt][j], turns.by[k][j]);
  }
};

// Visible positions of this lane's two columns of each tile, relative to a step's first key.
template <int NT>
struct Visible {
  int begin[NT][2];
  int end[NT][2];
};

// Softmax and values over part of a row's positions. Scores stay as they come from the product;
// `c` is scale · log2 e throughout. sum[] is a lane's own share until finish().
template <class T, int D, int NT>
struct Partial {
  float o[D / 16][NT][4];
  float max[NT][2];
  float sum[NT][2];

  __device__ void clear() {
#pragma unroll
    for (int nt = 0; nt < NT; ++nt) {
#pragma unroll
      for (int d = 0; d < D / 16; ++d)
#pragma unroll
        for (int e = 0; e < 4; ++e) o[d][nt][e] = 0;
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        max[nt][j] = -INFINITY;
        sum[nt][j] = 0;
      }
    }
  }

  // k and v: [kStepKeys] rows in shared memory. Values of masked keys must be finite.
  template <bool kMasked, class Layout>
  __device__ void add(const Queries<T, D, NT>& q, uint32_t k, uint32_t v,
                      const Visible<NT>& visible, float c) {
    const int lane = threadIdx.x % 32;
    float s[2][NT][4] = {};
    const Layout key_at(lane % 16, lane / 16);
#pragma unroll
    for (int i = 0; i < D / 16; ++i)
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        uint32_t keys[4];
        load_matrices(keys, k + key_at.at(half, i));
#pragma unroll
        for (int nt = 0; nt < NT; ++nt)
          multiply_add<T>(s[half][nt], keys, q.b[i][nt][0], q.b[i][nt][1]);
      }
    if (kMasked) mask(s, visible);
    soften(s, c);

    const Layout value_at(lane % 8 + lane / 16 * 8, lane / 8 % 2);
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      uint32_t p[NT][2];
#pragma unroll
      for (int nt = 0; nt < NT; ++nt) {
        p[nt][0] = transpose(pack<T>(s[half][nt][0], s[half][nt][1]));
        p[nt][1] = transpose(pack<T>(s[half][nt][2], s[half][nt][3]));
      }
#pragma unroll
      for (int d = 0; d < D / 16; ++d) {
        uint32_t values[4];
        load_matrices_transposed(values, v + value_at.at(half, d));
#pragma unroll
        for (int nt = 0; nt < NT; ++nt) multiply_add<T>(o[d][nt], values, p[nt][0], p[nt][1]);
      }
    }
  }

  // Adds the lanes' shares of the sums.
  __device__ void finish() {
#pragma unroll
    for (int nt = 0; nt < NT; ++nt)
#pragma unroll
      for (int j = 0; j < 2; ++j)
#pragma unroll
        for (int step = 4; step < 32; step *= 2)
          sum[nt][j] = __fadd_rn(sum[nt][j], __shfl_xor_sync(~0u, sum[nt][j], step));
  }

 private:
  __device__ static void mask(float (&s)[2][NT][4], const Visible<NT>& visible) {
    const int row = threadIdx.x % 32 / 4;
#pragma unroll
    for (int half = 0; half < 2; ++half)
#pragma unroll
      for (int nt = 0; nt < NT; ++nt)
#pragma unroll
        for (int e = 0; e < 4; ++e) {
          const int key = half * 16 + e / 2 * 8 + row;
          const bool seen = key >= visible.begin[nt][e % 2] && key < visible.end[nt][e % 2];
          s[half][nt][e] = seen ? s[half][nt][e] : -INFINITY;
        }
  }

  // s → probabilities under the new maximum; what was there before is scaled to it.
  __device__ void soften(float (&s)[2][NT][4], float c) {
#pragma unroll
    for (int nt = 0; nt < NT; ++nt)
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float most =
            fmaxf(fmaxf(s[0][nt][j], s[0][nt][j + 2]), fmaxf(s[1][nt][j], s[1][nt][j + 2]));
#pragma unroll
        for (int step = 4; step < 32; step *= 2)
          most = fmaxf(most, __shfl_xor_sync(~0u, most, step));
        most = fmaxf(most, max[nt][j]);
        const float base = most == -INFINITY ? 0 : most;  // nothing visible yet
        const float rescale = exp2_fast(__fmul_rn(__fsub_rn(max[nt][j], base), c));
        const float shift = -__fmul_rn(base, c);
        max[nt][j] = most;
        sum[nt][j] = __fmul_rn(sum[nt][j], rescale);
#pragma unroll
        for (int half = 0; half < 2; ++half)
#pragma unroll
          for (int e = j; e < 4; e += 2) {
            s[half][nt][e] = exp2_fast(__fmaf_rn(s[half][nt][e], c, shift));
            sum[nt][j] = __fadd_rn(sum[nt][j], s[half][nt][e]);
          }
#pragma unroll
        for (int d = 0; d < D / 16; ++d) {
          o[d][nt][j] = __fmul_rn(o[d][nt][j], rescale);
          o[d][nt][j + 2] = __fmul_rn(o[d][nt][j + 2], rescale);
        }
      }
  }
};

// Weights with which a running total and the next part are added: total · old + part · now.
struct MergeWeights {
  float old;
  float now;
};
__device__ inline MergeWeights merge_weights(float running_max, float part_max, float c) {
  const float most = fmaxf(running_max, part_max);
  const float base = most == -INFINITY ? 0 : most;
  return {exp2_fast(__fmul_rn(__fsub_rn(running_max, base), c)),
          exp2_fast(__fmul_rn(__fsub_rn(part_max, base), c))};
}
__device__ inline float merged(float total, float part, MergeWeights w) {
  return __fmaf_rn(total, w.old, __fmul_rn(part, w.now));
}

}  // namespace weft::kernels::gpu
