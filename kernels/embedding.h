// Rows of the embedding table for token ids, from one shard of the vocabulary.
#pragma once

#include <cstdint>

#include "kernels/device.h"
#include "kernels/tensor.h"

namespace weft::kernels {

// Rows of ids outside the shard are zero, so that the sum over shards is exact; −0 becomes +0, so
// that it is also the same bits for one shard and many.
struct Embedding {
  In table;                      // [shard_rows, hidden]
  const int32_t* ids = nullptr;  // [tokens]
  Out y;                         // [tokens, hidden]
  size_t tokens = 0;
  size_t hidden = 0;
  size_t shard_begin = 0;  // id of the table's first row
  size_t shard_rows = 0;
};

void embedding(const Embedding& args, Stream& stream);

}  // namespace weft::kernels
