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
  size_t cluster = 1;        // 1, 2 or 4 blocks that read x once for all
  size_t subtiles = 2;
  size_t n_slots = 4;
  size_t l2_stages = 0;  // stages fetched into L2 beyond the slots before the wait
};

// What a cut may be asked to be; the rest follows from the shape and the GPU.
struct StreamWish {
  // Of a block, all told. Two fit an SM, so that the next product's weights arrive while this one
  // ends, and leave room for a small kernel between them.
  size_t shared_bytes = 106 * 1024;
  size_t tiles_at_once = 0;  // 0: chosen
  size_t cluster = 0;        // 0: chosen
  size_t subtiles = 0;       // 0: chosen
  size_t l2_stages = 0;
};

// Whether the streaming kernel can compute this; depends on dtypes, alignment, k and n_chunks
// alone.
bool can_stream(const GpuProduct& args);
// Whether it normalises x itself.
bool normalises_in_stream(const GpuProduct& args);

StreamCut stream_cut(const GpuProduct& args, const StreamWish& wish, size_t n_sms);
void gpu_product_stream(const GpuProduct& args, const StreamCut& cut, CudaStream stream);

// gpu_product with the streaming kernel cut as wished.
void gpu_product_with(const GpuProduct& args, const StreamWish& wish, CudaStream stream);

// Any dtypes and strides: float32 multiply-adds in the order of k.
void gpu_product_plain(const GpuProduct& args, CudaStream stream);

}  // namespace weft::kernels
