// What the products of a layer take on the GPU, beside what it can read: each by itself, and all of
// DeepSeek-Coder 33B's in one graph, every layer with weights of its own. Times are medians of
// graph replays between events; bytes are the weights'.
//
//   gpu_product_bench [ops] [chain] [cuts] [by-op] [cublas] [prefill]    (all where none is
//   named)
#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "kernels/cuda_check.h"
#include "kernels/gpu_cublas.h"
#include "kernels/gpu_devices.h"
#include "kernels/gpu_product.h"
#include "kernels/gpu_product_stream.h"

namespace weft::kernels {
namespace {

constexpr size_t kHidden = 7168, kQkv = 9216, kFfn = 19200, kVocab = 32256;
constexpr size_t kMaxTokens = 2048;

struct Shape {
  const char* name;
  size_t n, k;
  GpuProduct::Epilogue epilogue;
  bool norm;
};
constexpr Shape kLayer[] = {{"qkv", kQkv, kHidden, GpuProduct::kStore, true},
                            {"o", kHidden, kHidden, GpuProduct::kAddResidual, false},
                            {"gate_up", 2 * kFfn, kHidden, GpuProduct::kSwiglu, true},
                            {"down", kHidden, kFfn, GpuProduct::kAddResidual, false}};
constexpr Shape kHead = {"head", kVocab, kHidden, GpuProduct::kStore, true};

size_t weight_bytes(const Shape& shape) { return shape.n * shape.k * 2; }
size_t layer_bytes() {
  size_t bytes = 0;
  for (const Shape& shape : kLayer) bytes += weight_bytes(shape);
  return bytes;
}

// Small numbers of both signs; zeros would run faster than a model does.
__global__ void fill(uint16_t* to, size_t n, float scale, uint32_t seed) {
  for (size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x; i < n;
       i += size_t{gridDim.x} * blockDim.x) {
    uint32_t h = static_cast<uint32_t>(i) * 2654435761u + static_cast<uint32_t>(i >> 32) + seed;
    h = (h ^ (h >> 15)) * 2246822519u;
    h = (h ^ (h >> 13)) * 3266489917u;
    h ^= h >> 16;
    const float value = (static_cast<float>(h) / 4294967296.0f - 0.5f) * scale;
    to[i] = static_cast<uint16_t>(__float_as_uint(value) >> 16);
  }
}

__global__ void read_all(const uint4* from, size_t n, uint32_t* never) {
  uint32_t sum = 0;
  const size_t step = size_t{gridDim.x} * blockDim.x;
  size_t i = size_t{blockIdx.x} * blockDim.x + threadIdx.x;
  for (; i + 7 * step < n; i += 8 * step) {
    uint4 words[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) words[j] = __ldcs(from + i + j * step);
#pragma unroll
    for (int j = 0; j < 8; ++j) sum ^= words[j].x ^ words[j].y ^ words[j].z ^ words[j].w;
  }
  if (sum == 0x12345678u) *never = sum;
}

class Device {
 public:
  explicit Device(size_t layers) : layers_(layers) {
    check(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate");
    weights_ = make(layers * layer_bytes() + weight_bytes(kHead), 0.04f, 1);
    x = make(kMaxTokens * kHidden * 2, 2, 2);
    qkv = make(kMaxTokens * kQkv * 2, 2, 3);
    act = make(kMaxTokens * kFfn * 2, 2, 4);
    norm = make(kHidden * 2, 2, 5);
    workspace = make(gpu_product_workspace_bytes(kMaxTokens, 2 * kFfn, kHidden), 1, 6);
    logits = make(kMaxTokens * kVocab * 4, 1, 7);
    scaled = make(kStreamTokens * kHidden * 2, 2, 9);
    squares = make(kMaxNormParts * kStreamTokens * 4, 2, 10);
    cublas_workspace = make(kCublasWorkspaceBytes, 1, 8);
    check(cudaDeviceSynchronize(), "fill");
  }

  // Median milliseconds of replays of what `record` enqueues.
  double ms(const std::function<void()>& record, int replays = 5) {
    cudaGraph_t graph;
    cudaGraphExec_t executable;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "capture");
    record();
    check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
    cudaEvent_t start, stop;
    check(cudaEventCreate(&start), "cudaEventCreate");
    check(cudaEventCreate(&stop), "cudaEventCreate");
    std::vector<float> times;
    for (int i = 0; i <= replays; ++i) {
      check(cudaEventRecord(start, stream), "cudaEventRecord");
      check(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
      check(cudaEventRecord(stop, stream), "cudaEventRecord");
      check(cudaEventSynchronize(stop), "cudaEventSynchronize");
      float time = 0;
      check(cudaEventElapsedTime(&time, start, stop), "cudaEventElapsedTime");
      if (i > 0) times.push_back(time);
    }
    cudaEventDestroy(start);
    cudaEventDestroy(stop);
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }

  double read_gbps() {
    const size_t bytes = std::min<size_t>(layers_ * layer_bytes(), size_t{16} << 30);
    double best = 0;
    for (unsigned blocks : {132u * 4, 132u * 8, 132u * 16}) {
      const double time = ms([&] {
        read_all<<<blocks, 256, 0, stream>>>(static_cast<const uint4*>(weights_), bytes / 16,
                                             static_cast<uint32_t*>(workspace));
      });
      best = std::max(best, static_cast<double>(bytes) / time / 1e6);
    }
    return best;
  }

  GpuProduct product(const Shape& shape, size_t layer, size_t tokens, bool dependent) const {
    GpuProduct a;
    const bool ffn_in = shape.k == kFfn;
    const bool head = shape.n == kVocab;
    a.x = {ffn_in ? act : shape.epilogue == GpuProduct::kAddResidual ? qkv : x, DType::bf16};
    a.x_stride = ffn_in ? kFfn : shape.epilogue == GpuProduct::kAddResidual ? kQkv : kHidden;
    a.w = {weights_of(shape, layer), DType::bf16};
    if (shape.norm) a.norm_weight = {norm, DType::bf16};
    if (shape.epilogue == GpuProduct::kAddResidual) a.residual = {x, DType::bf16};
    void* to = head                                         ? logits
               : shape.epilogue == GpuProduct::kAddResidual ? x
               : shape.epilogue == GpuProduct::kSwiglu      ? act
                                                            : qkv;
    a.y = {to, head ? DType::f32 : DType::bf16};
    a.epilogue = shape.epilogue;
    a.tokens = tokens;
    a.n = shape.n;
    a.k = shape.k;
    a.y_stride = shape.epilogue == GpuProduct::kSwiglu ? kFfn : shape.n;
    a.dependent_launch = dependent;
    a.workspace = workspace;
    return a;
  }
  size_t layers() const { return layers_; }

  cudaStream_t stream = nullptr;
  void *x, *qkv, *act, *norm, *workspace, *logits, *scaled, *squares, *cublas_workspace;

 private:
  void* make(size_t bytes, float scale, uint32_t seed) {
    void* data = nullptr;
    check(cudaMalloc(&data, bytes), "cudaMalloc of " + std::to_string(bytes >> 20) + " MiB");
    fill<<<132 * 8, 256, 0, stream>>>(static_cast<uint16_t*>(data), bytes / 2, scale, seed);
    return data;
  }
  const void* weights_of(const Shape& shape, size_t layer) const {
    const char* at = static_cast<const char*>(weights_) + layer * layer_bytes();
    if (shape.n == kVocab) return static_cast<const char*>(weights_) + layers_ * layer_bytes();
    for (const Shape& before : kLayer) {
      if (std::strcmp(before.name, shape.name) == 0) break;
      at += weight_bytes(before);
    }
    return at;
  }

  size_t layers_;
  void* weights_ = nullptr;
};

using Multiply = std::function<void(const GpuProduct&)>;

void print_row(const char* what, const char* detail, size_t tokens, double us, double bytes,
               double ceiling) {
  const double gbps = bytes / us / 1e3;
  std::printf("%-9s %-34s %6zu %10.1f %9.1f %8.0f %6.1f\n", what, detail, tokens, us, bytes / 1e6,
              gbps, 100 * gbps / ceiling);
  std::fflush(stdout);
}

// One product by itself, over the layers' own weights.
double op_us(Device& device, const Shape& shape, size_t tokens, const Multiply& multiply) {
  const size_t n = shape.n == kVocab ? 1 : std::min<size_t>(device.layers(), 16);
  const double ms = device.ms([&] {
    for (size_t i = 0; i < n; ++i) multiply(device.product(shape, i, tokens, true));
  });
  return ms * 1e3 / static_cast<double>(n);
}

double chain_ms(Device& device, size_t tokens, bool dependent, const Multiply& multiply) {
  return device.ms([&] {
    for (size_t layer = 0; layer < device.layers(); ++layer)
      for (const Shape& shape : kLayer) multiply(device.product(shape, layer, tokens, dependent));
  });
}

// The chain as a step has it: norms deferred from product to product. A wish an operation.
using Wishes = std::array<StreamWish, std::size(kLayer)>;
double deferred_chain_ms(Device& device, size_t tokens, const Wishes& wishes = {}) {
  return device.ms([&] {
    size_t parts = 0;
    for (size_t layer = 0; layer < device.layers(); ++layer)
      for (size_t op = 0; op < std::size(kLayer); ++op) {
        const Shape& shape = kLayer[op];
        GpuProduct a = device.product(shape, layer, tokens, true);
        if (shape.norm && parts > 0) {
          a.norm_weight = {};
          a.x = {device.scaled, DType::bf16};
          a.x_squares = static_cast<const float*>(device.squares);
          a.x_parts = parts;
        }
        if (shape.epilogue == GpuProduct::kAddResidual) {
          a.defer = {{device.norm, DType::bf16},
                     {device.scaled, DType::bf16},
                     static_cast<float*>(device.squares)};
          parts = gpu_product_norm_parts(a);
        }
        gpu_product_with(a, wishes[op], device.stream);
      }
  });
}

// One operation cut in another way, the others as ever; or all of them.
void cuts_by_op(Device& device, double ceiling) {
  const double bytes = static_cast<double>(device.layers() * layer_bytes());
  constexpr size_t n = std::size(kLayer), half_kib = 106;
  const auto time = [&](size_t tokens, size_t op, const StreamWish& wish) {
    Wishes wishes;
    for (size_t i = 0; i < n; ++i)
      if (op == n || op == i) wishes[i] = wish;
    char text[64];
    std::snprintf(text, sizeof text, "%zu an SM, %zu KiB, S%zu T%zu P%zu", wish.blocks_per_sm,
                  wish.shared_bytes >> 10, wish.subtiles, wish.tiles_at_once, wish.parts);
    const char* name = op == n ? "all" : kLayer[op].name;
    try {
      print_row(name, text, tokens, 1e3 * deferred_chain_ms(device, tokens, wishes), bytes,
                ceiling);
    } catch (const std::exception&) {
      std::printf("%-9s %-34s %6zu does not fit\n", name, text, tokens);
      cudaGraph_t broken = nullptr;
      cudaStreamEndCapture(device.stream, &broken);
      cudaGetLastError();
    }
  };
  for (size_t tokens : {8, 16, 32})
    for (size_t op = 0; op <= n; ++op) {
      time(tokens, op, {});
      for (size_t blocks : {1, 2, 3})
        for (size_t kib : {size_t{0}, half_kib})
          for (size_t tiles : {1, 2, 4})
            for (size_t subtiles : {1, 2, 4})
              for (size_t parts : {1, 2}) {
                if (tokens < 32 && (tiles > 1 || parts > 1)) continue;
                if (blocks > 1 && kib > 0) continue;
                const size_t shared = blocks == 3 ? size_t{70} << 10 : kib << 10;
                time(tokens, op, {blocks, shared, tiles, parts, subtiles});
              }
    }
}

void ops(Device& device, double ceiling) {
  for (size_t tokens : {1, 8, 32, 64, 128})
    for (const Shape& shape : {kLayer[0], kLayer[1], kLayer[2], kLayer[3], kHead})
      print_row(
          shape.name, "", tokens,
          op_us(device, shape, tokens, [&](const GpuProduct& a) { gpu_product(a, device.stream); }),
          static_cast<double>(weight_bytes(shape)), ceiling);
}

void chain(Device& device, double ceiling) {
  const double bytes = static_cast<double>(device.layers() * layer_bytes());
  for (size_t tokens : {1, 2, 4, 8, 16, 32, 64, 128})
    for (bool dependent : {true, false})
      print_row("chain", dependent ? "overlapped" : "one after another", tokens,
                1e3 * chain_ms(device, tokens, dependent,
                               [&](const GpuProduct& a) { gpu_product(a, device.stream); }),
                bytes, ceiling);
  for (size_t tokens : {1, 8, 16, 32})
    print_row("chain", "overlapped, norms deferred", tokens,
              1e3 * deferred_chain_ms(device, tokens), bytes, ceiling);
}

// Ways to cut the work, over the whole chain and over one large product, in which boundaries cost
// nothing.
void cuts(Device& device, double ceiling) {
  const double bytes = static_cast<double>(device.layers() * layer_bytes());
  static constexpr Shape kGiant = {"giant", 307200, kHidden, GpuProduct::kStore, false};
  for (size_t tokens : {1, 8, 32, 64, 128})
    for (size_t blocks : {1, 2})
      for (size_t subtiles : {0, 1, 2, 4})
        for (size_t tiles : {0, 2})
          for (size_t parts : {0, 1}) {
            const bool few = tokens <= 8;
            if (few ? tiles > 0 || parts > 0 || (subtiles > 0 && subtiles < 4)
                    : blocks == 2 || subtiles == 4)
              continue;
            StreamWish wish;
            wish.blocks_per_sm = blocks;
            wish.subtiles = subtiles;
            wish.tiles_at_once = tiles;
            wish.parts = parts;
            const auto multiply = [&](const GpuProduct& a) {
              gpu_product_with(a, wish, device.stream);
            };
            const double giant_ms = device.ms([&] {
              GpuProduct a = device.product(kGiant, 0, tokens, true);
              a.w = device.product(kLayer[0], 0, tokens, true).w;
              a.y = {device.logits, DType::bf16};
              multiply(a);
            });
            const double giant = static_cast<double>(weight_bytes(kGiant)) / giant_ms / 1e6;
            char text[96];
            std::snprintf(text, sizeof text, "%zu an SM, S%zu T%zu P%zu, giant %.1f", blocks,
                          subtiles, tiles, parts, 100 * giant / ceiling);
            print_row("cut", text, tokens, 1e3 * chain_ms(device, tokens, true, multiply), bytes,
                      ceiling);
          }
}

void by_cublas(Device& device, double ceiling, const std::vector<size_t>& counts) {
  CublasProducts cublas(device.cublas_workspace);
  for (size_t tokens : counts)
    for (const Shape& shape : kLayer) {
      GpuProduct a = device.product(shape, 0, tokens, false);
      a.norm_weight = {};
      if (shape.epilogue == GpuProduct::kSwiglu) {
        a.epilogue = GpuProduct::kStore;
        a.y = {static_cast<char*>(device.workspace) + tokens * kHidden * 2, DType::bf16};
        a.y_stride = shape.n;
      }
      cublas.measure(a, device.stream);
      const double us = op_us(device, shape, tokens, [&](GpuProduct b) {
        b.plan = cublas.plan(b);
        gpu_product(b, device.stream);
      });
      char text[64];
      std::snprintf(text, sizeof text, "cublas, with norm: %.0f TFLOP/s",
                    2e-6 * static_cast<double>(tokens * shape.n * shape.k) / us);
      print_row(shape.name, text, tokens, us, static_cast<double>(weight_bytes(shape)), ceiling);
    }
}

int run(const std::vector<std::string>& wanted) {
  const GpuQuery gpus = query_gpus();
  if (gpus.gpus.empty()) {
    std::printf("no GPU: %s\n", gpus.why_none.c_str());
    return 0;
  }
  const auto wants = [&](const char* what) {
    return wanted.empty() || std::find(wanted.begin(), wanted.end(), what) != wanted.end();
  };
  Device device(gpus.gpus[0].free_bytes > (size_t{75} << 30) ? 62 : 4);
  const double ceiling = device.read_gbps();
  std::printf("%s, %zu layers, reads %.0f GB/s\n", gpus.gpus[0].name.c_str(), device.layers(),
              ceiling);
  std::printf("%-9s %-34s %6s %10s %9s %8s %6s\n", "op", "", "tokens", "us", "MB", "GB/s", "%");
  if (wants("ops")) ops(device, ceiling);
  if (wants("chain")) chain(device, ceiling);
  if (wants("cuts")) cuts(device, ceiling);
  if (wants("by-op")) cuts_by_op(device, ceiling);
  if (wants("cublas")) by_cublas(device, ceiling, {64, 128});
  if (wants("prefill")) by_cublas(device, ceiling, {512, 2048});
  return 0;
}

}  // namespace
}  // namespace weft::kernels

int main(int n, char** words) {
  try {
    return weft::kernels::run(std::vector<std::string>(words + 1, words + n));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "gpu_product_bench: %s\n", error.what());
    return 1;
  }
}
