// The inner loops that are compiled once per instruction set, as one table of functions. Every set
// gives the same bits; which one runs is decided by the processor alone.
#pragma once

#include <cstddef>
#include <span>
#include <string_view>

#include "kernels/attention.h"
#include "kernels/gemm.h"
#include "kernels/swiglu.h"

namespace weft::kernels {

// The fixed order of a dot product: lane i takes elements i, i + 16, … by fma, a tail is padded
// with zeros, and lanes are added as (i, i + 8), (i, i + 4), (i, i + 2), (i, i + 1).
inline constexpr size_t kLanes = 16;

[[gnu::always_inline]] inline constexpr size_t round_up(size_t n, size_t multiple) {
  return (n + multiple - 1) / multiple * multiple;
}

// Elements of an elementwise operation that are worth a thread of their own.
inline constexpr size_t kElementwiseWork = 32'768;

// Limits of one call of `dots`, and the scratch that it needs; sized to stay in a core's L2 cache.
inline constexpr size_t kDotsTokens = 96;
inline constexpr size_t kPanelRows = 24;  // weight rows widened at a time
inline constexpr size_t kPanelK = 1024;
inline constexpr size_t kDotsScratchFloats =
    kPanelRows * kPanelK + kPanelRows * kDotsTokens * kLanes;

// out[t, r] = x[t] · w[r] for up to kDotsTokens tokens and any number of rows. Rows of x end in
// zeros up to a multiple of kLanes; rows of w need no padding.
struct Dots {
  const float* x = nullptr;  // [tokens, round_up(k, kLanes)], rows x_stride elements apart
  size_t x_stride = 0;
  size_t tokens = 0;
  const void* w = nullptr;  // [rows, k], rows w_stride elements apart
  size_t w_stride = 0;
  size_t rows = 0;
  size_t k = 0;
  float* out = nullptr;  // [tokens, rows], rows out_stride elements apart
  size_t out_stride = 0;
  float* scratch = nullptr;  // kDotsScratchFloats
};

// out[r] += Σ_j weight[r, j] v[j], j in order by fma; every row over the same n positions.
struct WeightedSum {
  const float* weight = nullptr;  // [rows, n], rows weight_stride elements apart
  size_t weight_stride = 0;
  size_t rows = 0;
  const void* v = nullptr;  // [n, width], rows v_stride elements apart
  size_t v_stride = 0;
  size_t n = 0;
  size_t width = 0;
  float* out = nullptr;  // [rows, width], rows out_stride elements apart
  size_t out_stride = 0;
};

struct SpanSoftmax {
  float max;
  float sum;
};

struct CpuKernels {
  std::string_view name;
  // One for each of DType::f32, f16, bf16, by the element type of w, v or the source.
  void (*dots[3])(const Dots& args);
  void (*weighted_sum[3])(const WeightedSum& args);
  // to[i] = float(from[i]) for i < n, zero up to n_padded (a multiple of kLanes).
  void (*widen[3])(const void* from, float* to, size_t n, size_t n_padded);
  // In place over [begin, end) of a span: score → exp(score · scale − max). Elements that share a
  // group of kLanes with the range become 0, so score holds whole groups.
  SpanSoftmax (*softmax)(float* score, size_t begin, size_t end, float scale);
  // total[i] = fma(total[i], a, part[i] · b).
  void (*merge)(float* total, const float* part, float a, float b, size_t n);
  float (*exp)(float x);
  // gate[i] = gate[i] / (1 + exp(−gate[i])) · up[i]; n is a multiple of kLanes.
  void (*silu_mul)(float* gate, const float* up, size_t n);
};

inline size_t dtype_slot(DType dtype) { return static_cast<size_t>(dtype); }

// Fastest first; the last one is the portable set, which every machine has.
std::span<const CpuKernels* const> usable_cpu_kernels();
inline const CpuKernels& best_cpu_kernels() { return *usable_cpu_kernels().front(); }

// The operations with the set given, for tests that compare sets.
void gemm_with(const CpuKernels& cpu, const Gemm& args, Stream& stream);
void attention_with(const CpuKernels& cpu, const Attention& args, Stream& stream);
void swiglu_with(const CpuKernels& cpu, const SwiGlu& args, Stream& stream);

}  // namespace weft::kernels
