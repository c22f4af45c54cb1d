// What the machine can read, and what the kernels make of it: bytes_per_second is weights or cache
// read, items_per_second is floating-point operations (two a multiply-add).
#include <benchmark/benchmark.h>

#include <cstring>
#include <random>
#include <vector>

#include "kernels/attention.h"
#include "kernels/gemm.h"
#include "runtime/base/pages.h"

namespace weft::kernels {
namespace {

constexpr size_t kMiB = size_t{1} << 20;

Pages filled(size_t bytes) {
  Pages pages(bytes);
  // Small bf16 numbers of both signs: no infinities, no subnormal sums.
  auto* words = reinterpret_cast<uint16_t*>(pages.data());
  uint32_t state = 1;
  for (size_t i = 0; i < bytes / 2; ++i) {
    state = state * 1664525u + 1013904223u;
    words[i] = static_cast<uint16_t>(0x3c00u | (state >> 16 & 0x80ffu));
  }
  return pages;
}

// The yardstick: 16-byte loads of 1 GiB, split over the threads.
void read_bandwidth(benchmark::State& state) {
  using Word = uint64_t __attribute__((vector_size(16)));
  const Pages pages = filled(1024 * kMiB);
  const auto* words = reinterpret_cast<const Word*>(pages.data());
  const size_t n = pages.bytes() / sizeof(Word);
  ThreadPool pool(static_cast<size_t>(state.range(0)));
  for (auto _ : state)
    pool.split(n, 65536, [&](size_t begin, size_t end) {
      Word a{}, b{}, c{}, d{};
      for (size_t i = begin; i + 4 <= end; i += 4) {
        a ^= words[i];
        b ^= words[i + 1];
        c ^= words[i + 2];
        d ^= words[i + 3];
      }
      benchmark::DoNotOptimize(a ^ b ^ c ^ d);
    });
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(pages.bytes()));
}
BENCHMARK(read_bandwidth)->Arg(1)->Arg(2)->Unit(benchmark::kMillisecond)->UseRealTime();

// tokens, n, k, threads, chunks, invariant; walks over many matrices, so that none is in a cache.
void gemm_bf16(benchmark::State& state) {
  Gemm a;
  a.tokens = static_cast<size_t>(state.range(0));
  a.n = static_cast<size_t>(state.range(1));
  a.k = a.x_stride = static_cast<size_t>(state.range(2));
  a.y_stride = a.n;
  a.n_chunks = static_cast<size_t>(state.range(4));
  a.invariant = state.range(5) != 0;
  const size_t matrix_bytes = a.n * a.k * 2;
  const size_t matrices = 1 + 512 * kMiB / matrix_bytes;
  const Pages w = filled(matrices * matrix_bytes), x = filled(a.tokens * a.k * 2);
  std::vector<bf16> y(a.tokens * a.n);
  std::vector<float> workspace(gemm_workspace_floats(a.tokens, a.n, a.k));
  ThreadPool pool(static_cast<size_t>(state.range(3)));
  Stream stream(pool);
  a.x = {x.data(), DType::bf16};
  a.y = y.data();
  a.workspace = workspace.data();
  size_t i = 0;
  for (auto _ : state) {
    a.w = {w.data() + i++ % matrices * matrix_bytes, DType::bf16};
    gemm(a, stream);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(matrix_bytes));
  state.SetItemsProcessed(state.iterations() * static_cast<int64_t>(2 * a.tokens * a.n * a.k));
}
BENCHMARK(gemm_bf16)
    ->ArgNames({"tokens", "n", "k", "threads", "chunks", "invariant"})
    // Decode of the 1.3B shapes: QKV, attention output, gate and up, down, head.
    ->Args({1, 6144, 2048, 2, 1, 1})
    ->Args({1, 2048, 2048, 2, 8, 1})
    ->Args({1, 11008, 2048, 2, 1, 1})
    ->Args({1, 2048, 5504, 2, 8, 1})
    ->Args({1, 32256, 2048, 2, 1, 1})
    ->Args({1, 8192, 8192, 2, 1, 1})
    ->Args({1, 6144, 2048, 1, 1, 1})
    // Small batches.
    ->Args({2, 6144, 2048, 2, 1, 1})
    ->Args({4, 6144, 2048, 2, 1, 1})
    ->Args({8, 6144, 2048, 2, 1, 1})
    // Prefill, and the same by BLAS.
    ->Args({512, 6144, 2048, 2, 1, 1})
    ->Args({512, 2048, 5504, 2, 8, 1})
    ->Args({512, 6144, 2048, 2, 1, 0})
    ->Args({64, 6144, 2048, 2, 1, 1})
    ->Args({64, 6144, 2048, 2, 1, 0})
    // The demo model: must not wake threads.
    ->Args({1, 256, 256, 2, 1, 1})
    ->Args({1, 256, 256, 1, 1, 1})
    ->Unit(benchmark::kMicrosecond)
    ->UseRealTime();

// context, query tokens, n_heads, n_kv_heads, threads.
void attention_bf16(benchmark::State& state) {
  const auto context = static_cast<size_t>(state.range(0));
  const auto tokens = static_cast<size_t>(state.range(1));
  constexpr size_t kHeadDim = 128;
  Attention a;
  a.n_heads = static_cast<size_t>(state.range(2));
  a.n_kv_heads = static_cast<size_t>(state.range(3));
  a.head_dim = kHeadDim;
  a.q_stride = a.n_heads * kHeadDim;
  a.scale = 0.088f;
  const size_t plane = kKvBlockTokens * kHeadDim * 2 * a.n_kv_heads;  // bytes
  const size_t blocks = (context + kKvBlockTokens - 1) / kKvBlockTokens;
  const size_t layers = 1 + 256 * kMiB / (2 * plane * blocks);
  const Pages cache = filled(layers * blocks * 2 * plane);
  std::vector<int32_t> table(blocks), positions(tokens), sequence(tokens);
  for (size_t i = 0; i < blocks; ++i) table[i] = static_cast<int32_t>(i);
  for (size_t t = 0; t < tokens; ++t) positions[t] = static_cast<int32_t>(context - tokens + t);
  a.cache.block_stride = static_cast<int64_t>(layers * 2 * plane);
  a.cache.value_offset = static_cast<int64_t>(plane);
  a.cache.key_head_stride = a.cache.value_head_stride = kKvBlockTokens * kHeadDim * 2;
  a.rows = {positions.data(), sequence.data(), table.data(), blocks, tokens};
  const Pages q = filled(tokens * a.q_stride * 2);
  std::vector<bf16> out(tokens * a.q_stride);
  a.q = {q.data(), DType::bf16};
  a.out = out.data();
  ThreadPool pool(static_cast<size_t>(state.range(4)));
  Stream stream(pool);
  std::vector<float> workspace(
      attention_workspace_floats(pool.n_threads(), a.n_heads, a.n_kv_heads, kHeadDim));
  a.workspace = workspace.data();
  size_t layer = 0;
  for (auto _ : state) {
    a.cache.base = cache.data() + layer++ % layers * 2 * plane;
    attention(a, stream);
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(2 * plane * context / 64));
  // Positions seen by all rows.
  const size_t seen = tokens * context - tokens * (tokens - 1) / 2;
  state.SetItemsProcessed(state.iterations() *
                          static_cast<int64_t>(4 * seen * a.n_heads * kHeadDim));
}
BENCHMARK(attention_bf16)
    ->ArgNames({"context", "tokens", "heads", "kv_heads", "threads"})
    ->Args({4096, 1, 16, 16, 2})
    ->Args({4096, 1, 32, 8, 2})
    ->Args({4096, 1, 8, 1, 1})
    ->Args({2048, 512, 16, 16, 2})
    ->Args({2048, 512, 32, 8, 2})
    ->Unit(benchmark::kMicrosecond)
    ->UseRealTime();

}  // namespace
}  // namespace weft::kernels
