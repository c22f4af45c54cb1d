// Rows of the embedding table for token ids in device memory, from one shard of the vocabulary.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/tensor.h"

struct CUstream_st;

namespace weft::kernels {

using CudaStream = CUstream_st*;

// Rows of ids outside the shard are zero; −0 becomes +0 (kernels/embedding.h says why).
struct GpuEmbedding {
  In table;                      // [shard_rows, hidden]
  const int32_t* ids = nullptr;  // [tokens]
  Out y;                         // [tokens, hidden]
  size_t tokens = 0;
  size_t hidden = 0;
  size_t shard_begin = 0;  // id of the table's first row
  size_t shard_rows = 0;
  bool dependent_launch = false;
};

void gpu_embedding(const GpuEmbedding& args, CudaStream stream);

}  // namespace weft::kernels
