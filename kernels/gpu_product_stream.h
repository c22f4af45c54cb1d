// The streaming product: how it is cut for a shape, and its launch. Inside of
// kernels/gpu_product.h; timings call it with cuts of their own.
#pragma once

#include <cstddef>

#include "kernels/gpu_product.h"

namespace weft::kernels {

// A block takes `tiles` tiles of `tile_rows` rows of w, `tiles_at_once` of them against each part
// of x that it reads; its shared memory holds `n_slots` stages of `subtiles` times 64 elements of
// k.
struct StreamCut {
  size_t group_tokens = 8;  // 8, 16, 32, 64 or 128: tokens a block computes at once
  size_t tile_rows = 64;    // at most 64
  size_t tiles = 1;
  size_t tiles_at_once = 1;  // 1, 2 or 4
  size_t parts = 1;  // 1 or 2 blocks that take a half of k each: then x is read half as often
  size_t subtiles = 2;
  size_t n_slots = 4;
};

// What a cut may be asked to be; 0 leaves the choice.
struct StreamWish {
  size_t blocks_per_sm = 0;
  size_t shared_bytes = 0;  // of a block, all told
  size_t tiles_at_once = 0;
  size_t parts = 0;
  size_t subtiles = 0;
};

// Whether the streaming kernel can compute this; depends on dtypes, alignment, k and n_chunks
// alone.
bool can_stream(const GpuProduct& args);

StreamCut stream_cut(const GpuProduct& args, const StreamWish& wish, size_t n_sms);
// Blocks, each of which leaves sums of squares where a norm is deferred.
size_t stream_norm_parts(const GpuProduct& args, const StreamCut& cut);
void gpu_product_stream(const GpuProduct& args, const StreamCut& cut, CudaStream stream);

// gpu_product with the streaming kernel cut as wished.
void gpu_product_with(const GpuProduct& args, const StreamWish& wish, CudaStream stream);

// Any dtypes and strides: float32 multiply-adds in the order of k.
void gpu_product_plain(const GpuProduct& args, CudaStream stream);

}  // namespace weft::kernels
