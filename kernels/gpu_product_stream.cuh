// The streaming product's kernel: one warp keeps the copy engine filling a ring of stages in shared
// memory, four warps multiply what has arrived. Weights are the matrix units' rows and tokens their
// columns, so that few tokens cost little and every batch has the same order of sums. The ring is
// filled with weights before the kernel before this one has ended: between two products the memory
// does not rest.
#pragma once

#include "kernels/gpu_float.cuh"
#include "kernels/gpu_product.h"
#include "kernels/hopper.cuh"
#include "kernels/hopper_wgmma.cuh"

namespace weft::kernels {

constexpr uint32_t kSubtile = 64;  // elements of k in a swizzled row of 128 bytes
constexpr uint32_t kSubtileBytes = 128;
constexpr uint32_t kMaxSlots = 32;
constexpr uint32_t kProductThreads = 128;
// Eights of a row that a thread of kNormed keeps in registers: rows of up to 8192 elements.
constexpr uint32_t kNormedHeld = 8;
constexpr uint32_t kStreamThreads = kProductThreads + 32;

// Floats between tokens in staging: a warp's stores then fall into 32 banks.
constexpr uint32_t kStagingPitch = 68;

enum class StreamMode {
  kWhole,    // k in one go
  kChunked,  // chunks of k, added in their tree
  kNormed,   // k in one go, x normalised by this kernel and kept in shared memory
};

struct StreamArgs {
  // Behind.
  const void* bias;
  const void* residual;
  void* y;
  DType bias_type, residual_type, y_type;
  GpuProduct::Epilogue epilogue;
  size_t y_stride;
  // In front, for kNormed.
  const void* x;
  size_t x_stride;
  const void* norm_weight;
  DType norm_type;
  float eps;

  uint32_t tokens, n, k, chunk, n_chunks;
  uint32_t tile_rows, tile_bytes, tiles, subtiles, n_slots, slot_bytes, l2_stages;
  uint64_t w_policy;
};

// A stage: some subtiles of one chunk, for one pass over the block's tiles.
struct StageCursor {
  uint32_t pass = 0;
  uint32_t chunk = 0;
  uint32_t subtile = 0;

  __device__ void advance(const StreamArgs& a, uint32_t subtiles_per_chunk) {
    subtile += a.subtiles;
    if (subtile < subtiles_per_chunk) return;
    subtile = 0;
    if (++chunk < a.n_chunks) return;
    chunk = 0;
    ++pass;
  }
};

template <class T, int kTokens, int kTiles, int kCluster, StreamMode kMode>
struct StreamBlock {
  static constexpr uint32_t kXBytes = kMode == StreamMode::kNormed ? 0 : kTokens * kSubtileBytes;
  static constexpr uint32_t kStagedTokens = kTokens < 32 ? kTokens : 32;
  static constexpr uint32_t kXSlice = kTokens / kCluster;  // tokens that this block fetches for all

  const StreamArgs& a;
  const CUtensorMap* w_map;
  const CUtensorMap* x_map;
  uint32_t ring, full, empty;  // addresses in shared memory
  uint32_t first_tile, my_tiles, first_token, rank;

  __device__ uint32_t subtiles_per_chunk() const { return (a.chunk + kSubtile - 1) / kSubtile; }
  __device__ uint32_t passes() const { return (my_tiles + kTiles - 1) / kTiles; }
  __device__ uint32_t stages() const {
    return passes() * a.n_chunks * ((subtiles_per_chunk() + a.subtiles - 1) / a.subtiles);
  }
  __device__ uint32_t tiles_in(uint32_t pass) const {
    return min(static_cast<uint32_t>(kTiles), my_tiles - pass * kTiles);
  }
  __device__ uint32_t subtiles_in(const StageCursor& at) const {
    return min(a.subtiles, subtiles_per_chunk() - at.subtile);
  }
  __device__ uint32_t subtile_bytes() const { return kTiles * a.tile_bytes + kXBytes; }
  __device__ int k_of(const StageCursor& at, uint32_t s) const {
    return static_cast<int>(at.chunk * a.chunk + (at.subtile + s) * kSubtile);
  }
  __device__ int row_of(const StageCursor& at, uint32_t tile) const {
    return static_cast<int>((first_tile + at.pass * kTiles + tile) * a.tile_rows);
  }

  // --- The warp that feeds the ring; one thread.

  __device__ void expect(const StageCursor& at, uint32_t slot) const {
    const uint32_t per_subtile = tiles_in(at.pass) * a.tile_rows * kSubtileBytes + kXBytes;
    hopper::barrier_expect(full + 8 * slot, subtiles_in(at) * per_subtile);
  }
  __device__ void load_w(const StageCursor& at, uint32_t slot) const {
    const uint32_t to = ring + slot * a.slot_bytes;
    for (uint32_t tile = 0; tile < tiles_in(at.pass); ++tile)
      for (uint32_t s = 0; s < subtiles_in(at); ++s)
        hopper::copy_tile(to + s * subtile_bytes() + tile * a.tile_bytes, w_map, k_of(at, s),
                          row_of(at, tile), full + 8 * slot, a.w_policy);
  }
  __device__ void load_x(const StageCursor& at, uint32_t slot) const {
    if constexpr (kMode == StreamMode::kNormed) return;
    const uint32_t to = ring + slot * a.slot_bytes + kTiles * a.tile_bytes;
    const int token = static_cast<int>(first_token + rank * kXSlice);
    for (uint32_t s = 0; s < subtiles_in(at); ++s) {
      const uint32_t place = to + s * subtile_bytes() + rank * kXSlice * kSubtileBytes;
      if constexpr (kCluster == 1)
        hopper::copy_tile(place, x_map, k_of(at, s), token, full + 8 * slot, hopper::kEvictNormal);
      else
        hopper::copy_tile_to_cluster(place, x_map, k_of(at, s), token, full + 8 * slot,
                                     (1u << kCluster) - 1, hopper::kEvictNormal);
    }
  }

  __device__ void feed() const {
    const uint32_t total = stages(), per_chunk = subtiles_per_chunk();
    const uint32_t ahead = min(a.n_slots, total);
    StageCursor at;
    for (uint32_t i = 0; i < ahead; ++i, at.advance(a, per_chunk)) {
      expect(at, i);
      load_w(at, i);
    }
    StageCursor further = at;
    for (uint32_t i = ahead; i < min(ahead + a.l2_stages, total); ++i) {
      for (uint32_t tile = 0; tile < tiles_in(further.pass); ++tile)
        for (uint32_t s = 0; s < subtiles_in(further); ++s)
          hopper::prefetch_tile(w_map, k_of(further, s), row_of(further, tile));
      further.advance(a, per_chunk);
    }
    hopper::wait_for_previous();
    StageCursor x_at;
    for (uint32_t i = 0; i < ahead; ++i, x_at.advance(a, per_chunk)) load_x(x_at, i);
    uint32_t slot = 0, parity = 0;
    for (uint32_t i = ahead; i < total; ++i, at.advance(a, per_chunk)) {
      hopper::barrier_wait(empty + 8 * slot, parity);
      expect(at, slot);
      load_w(at, slot);
      load_x(at, slot);
      if (++slot == a.n_slots) {
        slot = 0;
        parity ^= 1;
      }
    }
  }

  // --- The warps that multiply.

  struct Ring {
    uint32_t slot = 0;
    uint32_t parity = 0;
    __device__ void next(uint32_t n_slots) {
      if (++slot < n_slots) return;
      slot = 0;
      parity ^= 1;
    }
  };

  // The matrix units have read a slot.
  __device__ void release(uint32_t slot) const {
    const uint32_t lane = threadIdx.x % 32;
    if constexpr (kCluster == 1) {
      if (lane == 0) hopper::barrier_arrive(empty + 8 * slot);
    } else {
      if (lane < kCluster) hopper::barrier_arrive_at(empty + 8 * slot, lane);
    }
  }

  // 16 elements of k for all tiles.
  __device__ __forceinline__ void multiply_step(uint32_t slot, uint32_t x_place, uint32_t subtile,
                                                uint32_t s, uint32_t step,
                                                float (&acc)[kTiles][kTokens / 2]) const {
    const uint32_t place = slot + s * subtile_bytes() + step * 32;
    uint64_t b;
    if constexpr (kMode == StreamMode::kNormed)
      b = hopper::plain_operand(x_place + ((subtile + s) * kSubtile + step * 16) * 2 * a.tokens,
                                16 * a.tokens);
    else
      b = hopper::swizzled_operand(place + kTiles * a.tile_bytes);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
      hopper::warpgroup_product(T{}, acc[tile],
                                hopper::swizzled_operand(place + tile * a.tile_bytes), b);
  }

  // All stages of one chunk of one pass: acc = w x over the chunk.
  __device__ __forceinline__ void multiply_chunk(uint32_t chunk, uint32_t x_place, Ring& ring_at,
                                                 float (&acc)[kTiles][kTokens / 2]) const {
    const uint32_t per_chunk = subtiles_per_chunk();
    uint32_t before = 0;
#pragma unroll
    for (int i = 0; i < kTiles * kTokens / 2; ++i) acc[i / (kTokens / 2)][i % (kTokens / 2)] = 0;
    for (uint32_t subtile = 0; subtile < per_chunk; subtile += a.subtiles) {
      hopper::barrier_wait(full + 8 * ring_at.slot, ring_at.parity);
      hopper::product_fence();
      const uint32_t count = min(a.subtiles, per_chunk - subtile);
      const uint32_t slot = ring + ring_at.slot * a.slot_bytes;
      if constexpr (kMode == StreamMode::kChunked) {
        // Past the chunk's end stand the next chunk's elements.
        const uint32_t steps = min(4 * count, (a.chunk - subtile * kSubtile) / 16);
#pragma unroll 1
        for (uint32_t step = 0; step < steps; ++step)
          multiply_step(slot, x_place, subtile, step / 4, step % 4, acc);
      } else {
        for (uint32_t s = 0; s < count; ++s)  // past the end of k stand zeros
#pragma unroll
          for (uint32_t step = 0; step < 4; ++step)
            multiply_step(slot, x_place, subtile, s, step, acc);
      }
      hopper::product_commit();
      if (subtile > 0) {
        hopper::product_wait<1>();
        release(before);
      }
      before = ring_at.slot;
      ring_at.next(a.n_slots);
    }
    hopper::product_wait<0>();
    release(before);
  }

  // Sums pass through shared memory, some tokens at a time: what follows is then one short loop,
  // and neighbouring threads write neighbouring rows.
  __device__ void write_tile(const float (&acc)[kTokens / 2], uint32_t tile_row,
                             float* staging) const {
    const uint32_t lane = threadIdx.x % 32, row = threadIdx.x / 32 * 16 + lane / 4;
#pragma unroll
    for (uint32_t round = 0; round < kTokens / kStagedTokens; ++round) {
      hopper::named_barrier(1, kProductThreads);
#pragma unroll
      for (uint32_t i = 0; i < kStagedTokens / 2; ++i) {
        const uint32_t token = i / 4 * 8 + lane % 4 * 2 + i % 2;
        staging[token * kStagingPitch + row + i / 2 % 2 * 8] = acc[round * kStagedTokens / 2 + i];
      }
      hopper::named_barrier(1, kProductThreads);
      write_staged(staging, tile_row, first_token + round * kStagedTokens);
    }
  }
  __device__ void write_staged(const float* staging, uint32_t tile_row, uint32_t token) const {
    const uint32_t tokens = token < a.tokens ? min(kStagedTokens, a.tokens - token) : 0;
    const uint32_t rows = tile_row < a.n ? min(a.tile_rows, a.n - tile_row) : 0;
    const bool swiglu = a.epilogue == GpuProduct::kSwiglu;
    const uint32_t lanes = swiglu ? 32 : 64, outputs = swiglu ? rows / 2 : rows;
    const uint32_t i = threadIdx.x % lanes;
    if (i >= outputs) return;
    for (uint32_t t = threadIdx.x / lanes; t < tokens; t += kProductThreads / lanes) {
      const float* sums = staging + t * kStagingPitch;
      const size_t from = (token + t) * a.y_stride;
      if (swiglu)
        store_float(a.y, a.y_type, from + tile_row / 2 + i,
                    silu_times(biased(sums[2 * i], tile_row + 2 * i),
                               biased(sums[2 * i + 1], tile_row + 2 * i + 1)));
      else
        write(biased(sums[i], tile_row + i), from + tile_row + i);
    }
  }
  __device__ float biased(float sum, uint32_t row) const {
    return a.bias != nullptr ? sum + load_float(a.bias, a.bias_type, row) : sum;
  }
  __device__ void write(float value, size_t to) const {
    if (a.epilogue == GpuProduct::kAddResidual)
      value = load_float(a.residual, a.residual_type, to) + value;
    store_float(a.y, a.y_type, to, value);
  }

  // x / rms · weight of all tokens, in the layout of plain_operand: eights of k, tokens side by
  // side. Where there are fewer than 8 tokens the matrix units read others' elements for the rest;
  // those columns are not written. The weight is fetched before the kernel before has ended.
  __device__ void normalise(unsigned char* x_to, float* warp_sums) const {
    constexpr uint32_t kHeld = kNormedHeld;
    const auto sync = [] { hopper::named_barrier(1, kProductThreads); };
    const uint32_t eights = a.k / 8, thread = threadIdx.x;
    const uint4* weights = static_cast<const uint4*>(a.norm_weight);
    uint4 x[kHeld], weight[kHeld];
#pragma unroll
    for (uint32_t j = 0; j < kHeld; ++j)
      if (thread + j * kNormThreads < eights) weight[j] = weights[thread + j * kNormThreads];
    hopper::wait_for_previous();
    for (uint32_t t = 0; t < a.tokens; ++t) {
      const uint4* row =
          reinterpret_cast<const uint4*>(static_cast<const T*>(a.x) + t * a.x_stride);
#pragma unroll
      for (uint32_t j = 0; j < kHeld; ++j)
        if (thread + j * kNormThreads < eights) x[j] = __ldcg(row + thread + j * kNormThreads);
      float sum = 0, values[8];
#pragma unroll
      for (uint32_t j = 0; j < kHeld; ++j)
        if (thread + j * kNormThreads < eights) {
          widen_eight<T>(x[j], values);
          add_squares(values, sum);
        }
      const float inverse = inverse_rms(sum, a.k, a.eps, warp_sums, sync);
#pragma unroll
      for (uint32_t j = 0; j < kHeld; ++j) {
        const uint32_t i = thread + j * kNormThreads;
        if (i >= eights) continue;
        *reinterpret_cast<uint4*>(x_to + 16 * (i * a.tokens + t)) =
            normalised_eight<T>(x[j], inverse, weight[j]);
      }
    }
    hopper::async_proxy_fence();
    sync();
  }

  __device__ void multiply(uint32_t x_place, float* staging) const {
    Ring ring_at;
    for (uint32_t pass = 0; pass < passes(); ++pass) {
      float acc[kTiles][kTokens / 2];
      multiply_chunk(0, x_place, ring_at, acc);
      if constexpr (kMode == StreamMode::kChunked) add_chunks(x_place, ring_at, acc);
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile)
        if (tile < tiles_in(pass))
          write_tile(acc[tile], (first_tile + pass * kTiles + tile) * a.tile_rows, staging);
    }
  }
  // The other chunks join the first: partial sums wait one a level of the tree.
  __device__ void add_chunks(uint32_t x_place, Ring& ring_at,
                             float (&acc)[kTiles][kTokens / 2]) const {
    float level[3][kTiles][kTokens / 2];
    for (uint32_t chunk = 0;;) {
      bool carries = true;
#pragma unroll
      for (int l = 0; l < 3; ++l) {
        if (!carries) continue;
        carries = chunk >> l & 1;
#pragma unroll
        for (int i = 0; i < kTiles * kTokens / 2; ++i) {
          float& sum = acc[i / (kTokens / 2)][i % (kTokens / 2)];
          float& waits = level[l][i / (kTokens / 2)][i % (kTokens / 2)];
          if (carries)
            sum = waits + sum;
          else
            waits = sum;
        }
      }
      if (++chunk == a.n_chunks) return;
      multiply_chunk(chunk, x_place, ring_at, acc);
    }
  }
};

template <class T, int kTokens, int kTiles, int kCluster, StreamMode kMode>
__global__ void __launch_bounds__(kStreamThreads, 2)
    stream_product(const __grid_constant__ CUtensorMap w_map,
                   const __grid_constant__ CUtensorMap x_map, const StreamArgs a) {
  extern __shared__ unsigned char shared[];
  __shared__ uint64_t full[kMaxSlots], empty[kMaxSlots];
  __shared__ float warp_sums[4];
  __shared__ float staging[(kTokens < 32 ? kTokens : 32) * kStagingPitch];
  hopper::let_next_start();
  // The same for the whole warp, and known to be: matrix products may not stand in divergent code.
  const uint32_t warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);

  unsigned char* ring = shared + (1024 - hopper::shared_address(shared) % 1024) % 1024;
  StreamBlock<T, kTokens, kTiles, kCluster, kMode> block{a,
                                                         &w_map,
                                                         &x_map,
                                                         hopper::shared_address(ring),
                                                         hopper::shared_address(full),
                                                         hopper::shared_address(empty)};
  block.first_tile = blockIdx.y * a.tiles;
  block.first_token = blockIdx.x * kTokens;
  block.rank = kCluster == 1 ? 0 : hopper::cluster_rank();
  // Blocks of a cluster walk in step; those past the last row read zeros.
  const uint32_t all_tiles = (a.n + a.tile_rows - 1) / a.tile_rows;
  block.my_tiles = kCluster > 1 ? a.tiles : min(a.tiles, all_tiles - block.first_tile);

  if (threadIdx.x == kProductThreads) {
    hopper::prefetch_map(&w_map);
    hopper::prefetch_map(&x_map);
    for (uint32_t i = 0; i < a.n_slots; ++i) {
      hopper::barrier_init(block.full + 8 * i, 1);
      hopper::barrier_init(block.empty + 8 * i, kProductThreads / 32 * kCluster);
    }
    hopper::barrier_init_fence();
  }
  __syncthreads();
  if constexpr (kCluster > 1) {
    hopper::cluster_arrive();
    hopper::cluster_wait();
  }

  if (warp == kProductThreads / 32) {
    if (threadIdx.x == kProductThreads)
      block.feed();
    else
      hopper::wait_for_previous();
  } else {
    unsigned char* x_to = ring + a.n_slots * a.slot_bytes;
    if constexpr (kMode == StreamMode::kNormed)
      block.normalise(x_to, warp_sums);
    else
      hopper::wait_for_previous();
    block.multiply(hopper::shared_address(x_to), staging);
  }
  // No block may leave while another still writes to its memory or arrives at its barriers.
  if constexpr (kCluster > 1) {
    __syncwarp();
    hopper::cluster_arrive();
    hopper::cluster_wait();
  }
}

}  // namespace weft::kernels
