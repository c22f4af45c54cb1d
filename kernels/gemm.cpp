// Products on the CPU: x is widened to float once, outputs are split over threads, and each range
// of weight rows is walked in blocks that stay in a core's L2 cache.
#include "kernels/gemm.h"

#include <cblas.h>

#include <algorithm>
#include <type_traits>

#include "kernels/cpu_kernels.h"
#include "runtime/base/error.h"

namespace weft::kernels {
namespace {

constexpr size_t kMaxChunks = 8;
// Fewer multiply-adds than this are not worth waking a thread for.
constexpr size_t kRangeWork = 100'000;
constexpr size_t kBlasTokens = 32;  // from here on BLAS is quicker in fast mode
constexpr size_t kBlasRows = 96;
constexpr size_t kBlasK = 512;

// x as float rows whose chunks each end in zeros up to whole lanes.
struct FloatRows {
  const float* data = nullptr;  // [tokens, n_chunks, chunk_stride], rows row_stride elements apart
  size_t row_stride = 0;
  size_t chunk_stride = 0;
};

FloatRows widen_rows(const CpuKernels& cpu, const Gemm& a, Stream& stream) {
  const size_t chunk = a.k / a.n_chunks;
  if (a.x.dtype == DType::f32 && chunk % kLanes == 0) return {a.x.as<float>(), a.x_stride, chunk};
  const size_t padded = round_up(chunk, kLanes);
  const auto widen = cpu.widen[dtype_slot(a.x.dtype)];
  const size_t x_bytes = dtype_bytes(a.x.dtype);
  stream.pool().split(a.tokens, 1 + kRangeWork / a.k, [&](size_t begin, size_t end) {
    for (size_t t = begin; t < end; ++t)
      for (size_t c = 0; c < a.n_chunks; ++c)
        widen(a.x.as<std::byte>() + (t * a.x_stride + c * chunk) * x_bytes,
              a.workspace + (t * a.n_chunks + c) * padded, chunk, padded);
  });
  return {a.workspace, a.n_chunks * padded, padded};
}

// y[t, row + i] = sum[t, i] + bias[row + i], rounded once.
void write_block(const Gemm& a, const float* sum,  // [tokens, rows]
                 size_t token, size_t tokens, size_t row, size_t rows) {
  with_float_type(a.y.dtype, [&](auto y_type) {
    using Y = decltype(y_type);
    for (size_t t = 0; t < tokens; ++t) {
      Y* y = a.y.as<Y>() + (token + t) * a.y_stride + row;
      const float* from = sum + t * rows;
      if (!a.bias) {
        for (size_t i = 0; i < rows; ++i) y[i] = from_float<Y>(from[i]);
        continue;
      }
      with_float_type(a.bias.dtype, [&](auto bias_type) {
        const auto* bias = a.bias.as<decltype(bias_type)>() + row;
        for (size_t i = 0; i < rows; ++i) y[i] = from_float<Y>(from[i] + to_float(bias[i]));
      });
    }
  });
}

// One block of outputs: each chunk's dot products, then the tree over chunks.
void product_block(const CpuKernels& cpu, const Gemm& a, const FloatRows& x, size_t token,
                   size_t tokens, size_t row, size_t rows, float* part, float* scratch) {
  const size_t chunk = a.k / a.n_chunks;
  const size_t outputs = tokens * rows;
  Dots dots;
  dots.x_stride = x.row_stride;
  dots.tokens = tokens;
  dots.w_stride = a.k;
  dots.rows = rows;
  dots.k = chunk;
  dots.out_stride = rows;
  dots.scratch = scratch;
  for (size_t c = 0; c < a.n_chunks; ++c) {
    dots.x = x.data + token * x.row_stride + c * x.chunk_stride;
    dots.w = a.w.as<std::byte>() + (row * a.k + c * chunk) * dtype_bytes(a.w.dtype);
    dots.out = part + c * outputs;
    cpu.dots[dtype_slot(a.w.dtype)](dots);
  }
  for (size_t step = 1; step < a.n_chunks; step *= 2)
    for (size_t c = 0; c < a.n_chunks; c += 2 * step)
      for (size_t i = 0; i < outputs; ++i) part[c * outputs + i] += part[(c + step) * outputs + i];
  write_block(a, part, token, tokens, row, rows);
}

void product_rows(const CpuKernels& cpu, const Gemm& a, const FloatRows& x, size_t begin,
                  size_t end) {
  alignas(64) float part[kMaxChunks * kDotsTokens * kPanelRows];  // [n_chunks, tokens, rows]
  alignas(64) float scratch[kDotsScratchFloats];
  // A few rows at a time where chunks cut them, so that each weight row is read in one go.
  const size_t few = a.n_chunks == 1 ? 8 * kPanelRows : 8;
  const size_t block = a.tokens <= 4 ? few : kPanelRows;
  for (size_t row = begin; row < end; row += block)
    for (size_t t = 0; t < a.tokens; t += kDotsTokens)
      product_block(cpu, a, x, t, std::min(kDotsTokens, a.tokens - t), row,
                    std::min(block, end - row), part, scratch);
}

// y rows by BLAS over panels of weights widened to float; partial sums over k rest in `sum`.
void blas_rows(const CpuKernels& cpu, const Gemm& a, const FloatRows& x,
               float* sum,  // [tokens, n]
               size_t begin, size_t end) {
  alignas(64) float panel[kBlasRows * kBlasK];
  const size_t w_bytes = dtype_bytes(a.w.dtype);
  for (size_t row = begin; row < end; row += kBlasRows) {
    const size_t rows = std::min(kBlasRows, end - row);
    for (size_t i = 0; i < a.k; i += kBlasK) {
      const size_t k = std::min(kBlasK, a.k - i);
      for (size_t r = 0; r < rows; ++r)
        cpu.widen[dtype_slot(a.w.dtype)](a.w.as<std::byte>() + ((row + r) * a.k + i) * w_bytes,
                                         panel + r * kBlasK, k, k);
      cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, static_cast<int>(a.tokens),
                  static_cast<int>(rows), static_cast<int>(k), 1, x.data + i,
                  static_cast<int>(x.row_stride), panel, kBlasK, i == 0 ? 0 : 1, sum + row,
                  static_cast<int>(a.n));
    }
    for (size_t t = 0; t < a.tokens; ++t) write_block(a, sum + t * a.n + row, t, 1, row, rows);
  }
}

void check(const Gemm& a) {
  const bool power_of_two = a.n_chunks > 0 && (a.n_chunks & (a.n_chunks - 1)) == 0;
  WEFT_EXPECT(power_of_two && a.n_chunks <= kMaxChunks && a.k % a.n_chunks == 0);
  WEFT_EXPECT(a.k > 0 && a.x_stride >= a.k && a.y_stride >= a.n);
}

// The sum in plain order and double.
template <class X, class W>
double plain_dot(const X* x, const W* w, size_t k) {
  double sum = 0;
  for (size_t i = 0; i < k; ++i) sum += double{to_float(x[i])} * to_float(w[i]);
  return sum;
}

void oracle(const Gemm& a) {
  check(a);
  with_float_type(a.x.dtype, [&](auto x_type) {
    with_float_type(a.w.dtype, [&](auto w_type) {
      const auto* x = a.x.as<decltype(x_type)>();
      const auto* w = a.w.as<decltype(w_type)>();
      for (size_t t = 0; t < a.tokens; ++t)
        for (size_t n = 0; n < a.n; ++n) {
          const auto sum = static_cast<float>(plain_dot(x + t * a.x_stride, w + n * a.k, a.k));
          write_block(a, &sum, t, 1, n, 1);
        }
    });
  });
}

}  // namespace

size_t gemm_workspace_floats(size_t max_tokens, size_t max_n, size_t max_k) {
  return max_tokens * (round_up(max_k, kLanes) + kMaxChunks * kLanes + max_n);
}

void gemm_with(const CpuKernels& cpu, const Gemm& args, Stream& stream) {
  check(args);
  if (args.tokens == 0 || args.n == 0) return;
  const bool blas = !args.invariant && args.tokens >= kBlasTokens;
  Gemm a = args;
  if (blas) a.n_chunks = 1;
  const FloatRows x = widen_rows(cpu, a, stream);
  const size_t grain = round_up(1 + kRangeWork / (a.tokens * a.k), blas ? kBlasRows : kPanelRows);
  stream.pool().split(a.n, grain, [&](size_t begin, size_t end) {
    if (blas)
      blas_rows(cpu, a, x, a.workspace + a.tokens * round_up(a.k, kLanes), begin, end);
    else
      product_rows(cpu, a, x, begin, end);
  });
}

template <class Acc>
void gemm(const Gemm& args, Stream& stream) {
  if constexpr (std::is_same_v<Acc, double>)
    oracle(args);
  else
    gemm_with(best_cpu_kernels(), args, stream);
}

template void gemm<float>(const Gemm& args, Stream& stream);
template void gemm<double>(const Gemm& args, Stream& stream);

}  // namespace weft::kernels
