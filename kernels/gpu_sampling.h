// One token for each row of logits, on the GPU: the token that kernels/sampling.h takes from the
// same logits.
#pragma once

#include "kernels/gpu_kv.h"
#include "kernels/sampling.h"

namespace weft::kernels {

// All pointers are of device memory; those named *_host may be pinned host memory, which the GPU
// writes directly (visible once an event after the launch has happened). Rows whose logits are NaN
// or infinite get their first bad id in `bad` instead of an exception, and token 0; minus infinity
// is never drawn. Log-probabilities agree with the CPU's to float32 rounding and do not depend on
// shards, rows or batch.
struct GpuSample {
  const float* logits = nullptr;  // [n_shards, rows, shard_vocab]; ids >= vocab are padding
  size_t n_shards = 1;
  size_t rows = 0;
  size_t shard_vocab = 0;
  size_t vocab = 0;
  // [rows], `seen` in device memory. Null: every row is greedy without a penalty, and the whole
  // GPU works on each row (no log-probabilities).
  const SampleRow* row = nullptr;
  int32_t* token = nullptr;       // [rows] the next step's input
  int32_t* token_host = nullptr;  // [rows] or null
  int32_t* bad = nullptr;         // [rows] or null: −1, or the first id that is NaN or infinite
  float* logprob = nullptr;       // [rows] or null
  size_t n_top = 0;
  int32_t* top_token = nullptr;  // [rows, n_top]
  float* top_logprob = nullptr;  // [rows, n_top]
  bool dependent_launch = false;
  // gpu_sample_workspace_bytes(…), 256-byte aligned, zero before the first call and nobody else's.
  std::byte* workspace = nullptr;
};

size_t gpu_sample_workspace_bytes(size_t max_rows, size_t vocab);

// Throws std::invalid_argument on shapes it does not take.
void gpu_sample(const GpuSample& args, CudaStream stream);

}  // namespace weft::kernels
