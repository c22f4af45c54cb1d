// The kernels of a layer and of a step's ends, one by one, at a model's shapes: what each must
// read, write and compute, and how long it takes on a rank's CPU or GPU.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "launch/bench_ceilings.h"
#include "launch/calibrate_rig.h"
#include "planner/model_spec.h"
#include "planner/shard_shapes.h"

namespace weft::launch {

enum class KernelOp : uint8_t {
  embedding,
  norm,
  qkv,
  rope,  // norms of heads, RoPE, append to the cache
  attention,
  o,
  gate_up,  // on a GPU with norm and SwiGLU
  swiglu,
  down,
  residual,  // the sum over ranks joins the residual stream
  head,
  sampling,
};
inline constexpr std::array<std::string_view, 12> kKernelNames = {
    "embedding", "norm",   "qkv",  "rope",     "attention", "o",
    "gate_up",   "swiglu", "down", "residual", "head",      "sampling"};

// What a step asks of a kernel: a token of each of `batch` sequences at `context` positions, or all
// tokens of one prompt.
struct KernelWork {
  bool prefill = false;
  size_t batch = 1;
  size_t tokens = 0;  // decode: the context; prefill: of the prompt

  size_t rows() const { return prefill ? tokens : batch; }
  size_t sampled() const { return prefill ? 1 : batch; }
  std::string name() const;
};

// A model on one of tp ranks.
struct KernelShapes {
  planner::ModelSpec spec;
  planner::ShardShapes shard;
  size_t qkv_width() const {
    return (shard.heads.size() + 2 * shard.kv_heads.size()) * spec.head_dim;
  }
  size_t head_columns() const { return shard.heads.size() * spec.head_dim; }
};

// Outputs and inputs of a product; none for what is no product.
struct ProductSize {
  size_t outputs = 0, inputs = 0;
};
ProductSize product_size(const KernelShapes& shapes, KernelOp op);

// Least bytes that it moves: every input and output once.
double kernel_bytes(const KernelShapes& shapes, KernelOp op, const KernelWork& work);
// Of products and attention; 0 for what is bound by memory at any size.
double kernel_flops(const KernelShapes& shapes, KernelOp op, const KernelWork& work);

class KernelSet {
 public:
  virtual ~KernelSet() = default;
  virtual Ceilings ceilings() = 0;
  // Microseconds of one call. Memory that a model's other layers would have put out of the caches
  // is not found there.
  virtual double time_us(KernelOp op, const KernelWork& work) = 0;
};

// With room for all of `works`. On CPUs all ranks of the rig measure at once, and their mean
// counts: collective calls of its ranks. On a GPU, the current one, as replays of a graph.
std::unique_ptr<KernelSet> make_cpu_kernels(const KernelShapes& shapes,
                                            const std::vector<KernelWork>& works, const Rig& rig);
std::unique_ptr<KernelSet> make_gpu_kernels(const KernelShapes& shapes,
                                            const std::vector<KernelWork>& works,
                                            kernels::ThreadPool& pool);

}  // namespace weft::launch
