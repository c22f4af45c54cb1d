// Times of attention, cache writes and sampling on a GPU at the shapes of DeepSeek-Coder 33B, by
// events around replays of a graph. Work that a cache could serve runs over several layers in turn.
// Prints a table: microseconds a launch, rate, and for decode its ratio to the rate at which a
// plain kernel reads memory in the same run. An argument picks decode, prefill, post or sample.
// Bytes are keys and values read once; operations are those of visible positions.
#include <cstdio>
#include <functional>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "kernels/gpu_attention_decode.cuh"
#include "kernels/gpu_devices.h"
#include "kernels/gpu_sampling.h"

namespace weft::kernels {
namespace {

using namespace gpu;

template <class T>
class Array {
 public:
  explicit Array(size_t n) : n_(n) {
    void* data = nullptr;
    check(cudaMalloc(&data, n * sizeof(T)), "cudaMalloc");
    data_.reset(static_cast<T*>(data));
  }
  explicit Array(const std::vector<T>& host) : Array(host.size()) {
    check(cudaMemcpy(data(), host.data(), n_ * sizeof(T), cudaMemcpyHostToDevice), "copy");
  }
  T* data() const { return data_.get(); }
  size_t size() const { return n_; }

 private:
  struct Free {
    void operator()(T* p) const { cudaFree(p); }
  };
  size_t n_;
  std::unique_ptr<T, Free> data_;
};

__device__ float random_value(size_t i) {
  uint64_t x = (i + 1) * 0x9e3779b97f4a7c15ull;
  x = (x ^ x >> 31) * 0xbf58476d1ce4e5b9ull;
  // A sum of four uniform bytes, close to normal with deviation 1.
  const auto sum =
      static_cast<float>((x >> 32 & 255) + (x >> 40 & 255) + (x >> 48 & 255) + (x >> 56));
  return (sum - 510) / 148;
}

template <class T>
__global__ void fill_kernel(T* to, size_t n) {
  for (size_t i = blockIdx.x * size_t{256} + threadIdx.x; i < n; i += size_t{gridDim.x} * 256)
    to[i] = from_float<T>(random_value(i));
}

template <class T>
void fill(const Array<T>& array) {
  fill_kernel<<<2048, 256>>>(array.data(), array.size());
  check(cudaGetLastError(), "fill");
}

__global__ void __launch_bounds__(512) read_kernel(const uint4* from, size_t n, uint32_t* out) {
  uint32_t all = 0;
  const size_t step = size_t{gridDim.x} * 512;
  for (size_t i = blockIdx.x * size_t{512} + threadIdx.x; i < n; i += 8 * step) {
    uint4 x[8];
#pragma unroll
    for (int j = 0; j < 8; ++j)
      x[j] = i + j * step < n ? __ldcs(from + i + j * step) : make_uint4(0, 0, 0, 0);
#pragma unroll
    for (int j = 0; j < 8; ++j) all |= x[j].x ^ x[j].y ^ x[j].z ^ x[j].w;
  }
  if (all == 0x12345678) *out = all;
}

// Microseconds of what `record` enqueues, the median of replays.
double time_us(cudaStream_t stream, const std::function<void()>& record, int replays = 9) {
  cudaGraph_t graph;
  cudaGraphExec_t replay;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
  record();
  check(cudaStreamEndCapture(stream, &graph), "capture");
  check(cudaGraphInstantiate(&replay, graph, 0), "cudaGraphInstantiate");
  cudaEvent_t begin, end;
  check(cudaEventCreate(&begin), "event");
  check(cudaEventCreate(&end), "event");
  std::vector<float> times;
  float all_ms = 0;  // clocks have risen after a while of work
  while (times.size() < static_cast<size_t>(replays)) {
    check(cudaEventRecord(begin, stream), "event");
    check(cudaGraphLaunch(replay, stream), "cudaGraphLaunch");
    check(cudaEventRecord(end, stream), "event");
    check(cudaEventSynchronize(end), "replay");
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "time");
    if (all_ms > 15) times.push_back(ms);
    all_ms += ms;
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaGraphExecDestroy(replay);
  cudaGraphDestroy(graph);
  std::nth_element(times.begin(), times.begin() + replays / 2, times.end());
  return 1e3 * static_cast<double>(times[static_cast<size_t>(replays / 2)]);
}

constexpr size_t kHeads = 56, kKvHeads = 8, kDim = 128, kWidth = (kHeads + 2 * kKvHeads) * kDim;
constexpr size_t kPlane = kKvHeads * kKvBlockTokens * kDim * 2;

// Sequences of one length with their cache, queries and outputs.
struct Batch {
  Batch(size_t n_sequences, size_t length, size_t layers, size_t n_rows)
      : columns((length + kKvBlockTokens - 1) / kKvBlockTokens),
        n_layers(layers),
        cache(columns * n_sequences * layers * kPlane),
        q(n_rows * kWidth),
        out(n_rows * kHeads * kDim) {
    fill(cache);
    fill(q);
    std::vector<int32_t> blocks(columns * n_sequences);
    std::iota(blocks.begin(), blocks.end(), 0);
    std::shuffle(blocks.begin(), blocks.end(), std::mt19937(7));
    table = std::make_unique<Array<int32_t>>(blocks);
  }

  void rows(const std::vector<int32_t>& at, const std::vector<int32_t>& of) {
    positions = std::make_unique<Array<int32_t>>(at);
    sequence = std::make_unique<Array<int32_t>>(of);
  }

  GpuAttention attention(size_t layer) const {
    GpuAttention a;
    a.q = {q.data(), DType::bf16};
    a.cache.base = reinterpret_cast<std::byte*>(cache.data()) + layer * 2 * kPlane;
    a.cache.block_stride = static_cast<int64_t>(n_layers * 2 * kPlane);
    a.cache.value_offset = kPlane;
    a.cache.key_head_stride = a.cache.value_head_stride = kKvBlockTokens * kDim * 2;
    a.rows = {positions->data(), sequence->data(), table->data(), columns, positions->size()};
    a.out = {out.data(), DType::bf16};
    a.n_heads = kHeads;
    a.n_kv_heads = kKvHeads;
    a.head_dim = kDim;
    a.q_stride = kWidth;
    a.scale = 0.0883883f;
    a.dependent_launch = true;
    return a;
  }

  size_t columns;
  size_t n_layers;
  Array<Bf16> cache;  // as many elements as a layer has in a plane, two planes: bytes / 2
  Array<Bf16> q;
  Array<Bf16> out;
  std::unique_ptr<Array<int32_t>> positions, sequence, table;
};

double read_gbps(cudaStream_t stream) {
  const Array<Bf16> memory(size_t{1} << 30);
  const Array<uint32_t> out(1);
  fill(memory);
  double best = 0;
  for (unsigned blocks : {2u, 4u})
    best = std::max(best, 2e-3 * static_cast<double>(memory.size()) / time_us(stream, [&] {
                            read_kernel<<<multiprocessors() * blocks, 512, 0, stream>>>(
                                reinterpret_cast<const uint4*>(memory.data()), memory.size() / 8,
                                out.data());
                          }));
  std::printf("%-44s %10.0f GB/s\n", "read", best);
  return best;
}

using Decode = std::function<void(const GpuAttention&, cudaStream_t)>;
template <template <class, int, int> class RingOf, int kWarps, int kStages>
void decode_as(const GpuAttention& g, cudaStream_t stream) {
  CUtensorMap keys{}, values{};
  if (!map_planes(g, kStepKeys, keys, values)) throw std::runtime_error("no tensor maps");
  launch_decode<RingOf, Bf16, 128, 1, kWarps, kStages>(g, decode_args<Bf16>(g, 0, g.n_single, 8),
                                                       keys, values, stream);
}

void time_decode(cudaStream_t stream, size_t n, size_t context, size_t layers, double ceiling) {
  Batch batch(n, context, layers, n);
  std::vector<int32_t> positions(n, static_cast<int32_t>(context - 1)), sequence(n);
  std::iota(sequence.begin(), sequence.end(), 0);
  batch.rows(positions, sequence);
  const Array<std::byte> workspace(gpu_attention_workspace_bytes(n, n * context, kHeads, kDim));
  const Array<float> rope(context * kDim);
  fill(rope);
  const Decode after_post = [&](const GpuAttention& a, cudaStream_t on) {
    GpuQkvPost post;
    post.qkv = {const_cast<void*>(a.q.data), DType::bf16};
    post.rope = rope.data();
    post.cache = a.cache;
    post.rows = a.rows;
    post.n_heads = kHeads;
    post.n_kv_heads = kKvHeads;
    post.head_dim = kDim;
    post.stride = kWidth;
    post.dependent_launch = true;
    gpu_qkv_post(post, on);
    gpu_attention(a, on);
  };
  const Decode with_post = [&](GpuAttention a, cudaStream_t on) {
    a.rope = rope.data();
    gpu_attention(a, on);
  };
  const struct {
    const char* name;
    Decode decode;
    bool invariant;
  } ways[] = {{"", gpu_attention, false},
              {" invariant", gpu_attention, true},
              {" by lanes", decode_as<LaneRing, 4, 3>, false},
              {" after post", after_post, false},
              {" with post", with_post, false}};
  for (const auto& way : ways) {
    const double us = time_us(stream,
                              [&] {
                                for (size_t layer = 0; layer < layers; ++layer) {
                                  GpuAttention a = batch.attention(layer);
                                  a.n_single = n;
                                  a.max_context = context;
                                  a.invariant = way.invariant;
                                  a.workspace = workspace.data();
                                  way.decode(a, stream);
                                }
                              }) /
                      static_cast<double>(layers);
    const double gbps = 2e-3 * kPlane / kKvBlockTokens * static_cast<double>(n * context) / us;
    char name[64];
    std::snprintf(name, sizeof name, "decode %zu x %zu%s", n, context, way.name);
    std::printf("%-34s %9.2f us %7.0f GB/s %6.1f %%\n", name, us, gbps, 100 * gbps / ceiling);
  }
}

void time_prefill(cudaStream_t stream, size_t tokens) {
  Batch batch(1, tokens, 1, tokens);
  std::vector<int32_t> positions(tokens), sequence(tokens), single(tokens);
  std::iota(positions.begin(), positions.end(), 0);
  batch.rows(positions, sequence);
  std::vector<GpuTile> tiles(gpu_tiles_at_most(tokens));
  PagedRows rows;
  rows.positions = positions.data();
  rows.sequence = sequence.data();
  rows.tokens = tokens;
  const GpuRowCounts counts = gpu_attention_rows(rows, single, tiles);
  const Array<GpuTile> gpu_tiles(tiles);
  const double flop = 2.0 * kDim * kHeads * static_cast<double>(tokens) * (tokens + 1.0);
  for (bool invariant : {false, true}) {
    const double us = time_us(
        stream,
        [&] {
          GpuAttention a = batch.attention(0);
          a.tiles = gpu_tiles.data();
          a.n_tiles = counts.n_tiles;
          a.invariant = invariant;
          gpu_attention(a, stream);
        },
        5);
    std::printf("prefill %-6zu%-20s %9.1f us %7.0f TFLOP/s\n", tokens,
                invariant ? " invariant" : "", us, flop / us * 1e-6);
  }
}

void time_post(cudaStream_t stream, size_t tokens) {
  const size_t n = std::min<size_t>(tokens, 16384), length = 16384;
  Batch batch(1, length, 1, tokens);
  const Array<float> table(length * kDim);
  fill(table);
  std::vector<int32_t> positions(n), sequence(n);
  std::iota(positions.begin(), positions.end(), 0);
  batch.rows(positions, sequence);
  const int repeats = tokens > 1000 ? 2 : 20;
  const double us = time_us(stream,
                            [&] {
                              for (int i = 0; i < repeats; ++i) {
                                const GpuAttention a = batch.attention(0);
                                GpuQkvPost post;
                                post.qkv = {batch.q.data(), DType::bf16};
                                post.rope = table.data();
                                post.cache = a.cache;
                                post.rows = a.rows;
                                post.n_heads = kHeads;
                                post.n_kv_heads = kKvHeads;
                                post.head_dim = kDim;
                                post.stride = kWidth;
                                post.dependent_launch = true;
                                gpu_qkv_post(post, stream);
                              }
                            }) /
                    repeats;
  std::printf("qkv post %-25zu %9.2f us %7.0f GB/s\n", tokens, us,
              4e-3 * static_cast<double>(tokens * kWidth) / us);
}

void time_sampling(cudaStream_t stream, size_t rows, size_t vocab, const SamplingParams* params,
                   const char* what) {
  const Array<float> logits(rows * vocab);
  fill(logits);
  const Array<int32_t> token(rows);
  SampleRow row;
  if (params != nullptr) row.params = *params;
  const Array<SampleRow> all(std::vector<SampleRow>(rows, row));
  const Array<std::byte> workspace(gpu_sample_workspace_bytes(rows, vocab));
  check(cudaMemset(workspace.data(), 0, workspace.size()), "clear");
  GpuSample a;
  a.logits = logits.data();
  a.rows = rows;
  a.shard_vocab = a.vocab = vocab;
  a.row = params == nullptr ? nullptr : all.data();
  a.token = token.data();
  a.workspace = workspace.data();
  a.dependent_launch = true;
  constexpr int kRepeats = 20;
  const double us = time_us(stream,
                            [&] {
                              for (int i = 0; i < kRepeats; ++i) gpu_sample(a, stream);
                            }) /
                    kRepeats;
  std::printf("sample %-10s %4zu x %-12zu %7.2f us\n", what, rows, vocab, us);
}

// One operation by its name, or all.
void run(const std::string& op) {
  const auto wanted = [&](const char* name) { return op.empty() || op == name; };
  cudaStream_t stream;
  check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
  const double ceiling = read_gbps(stream);
  if (wanted("decode")) {
    time_decode(stream, 128, 2048, 1, ceiling);
    time_decode(stream, 8, 16384, 1, ceiling);
    time_decode(stream, 1, 16384, 16, ceiling);
    time_decode(stream, 32, 2048, 4, ceiling);
    time_decode(stream, 8, 2048, 16, ceiling);
    time_decode(stream, 1, 2048, 62, ceiling);
  }
  if (wanted("prefill"))
    for (size_t tokens : {512, 2048, 16384}) time_prefill(stream, tokens);
  if (wanted("post"))
    for (size_t tokens : {1, 128, 16384}) time_post(stream, tokens);
  if (wanted("sample")) {
    SamplingParams top;
    top.temperature = 0.8f;
    top.top_p = 0.95f;
    top.top_k = 50;
    SamplingParams nucleus = top;
    nucleus.top_k = 0;
    for (size_t rows : {1, 128}) {
      time_sampling(stream, rows, 32256, nullptr, "greedy");
      time_sampling(stream, rows, 32256, &top, "top-k, top-p");
      time_sampling(stream, rows, 32256, &nucleus, "top-p");
    }
    time_sampling(stream, 1, 152064, nullptr, "greedy");
    time_sampling(stream, 1, 152064, &top, "top-k, top-p");
  }
  check(cudaStreamDestroy(stream), "cudaStreamDestroy");
}

}  // namespace
}  // namespace weft::kernels

int main(int n_arguments, char** arguments) {
  const auto query = weft::kernels::query_gpus();
  if (query.gpus.empty()) {
    std::printf("no GPU: %s\n", query.why_none.c_str());
    return 0;
  }
  std::printf("%s\n", query.gpus[0].name.c_str());
  weft::kernels::run(n_arguments > 1 ? arguments[1] : "");
}
