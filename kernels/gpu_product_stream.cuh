// The streaming product's kernel: one warp keeps the copy engine filling a ring of stages in shared
// memory, four warps multiply what has arrived. Weights are the matrix units' rows and tokens their
// columns, so that few tokens cost little and every batch has the same order of sums. The ring is
// filled with weights before the kernel before this one has ended, so that the memory hardly rests
// between two products.
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
// A warp feeds; up to kStreamTokens tokens another finds the rms of x.
constexpr uint32_t stream_threads(size_t group_tokens) {
  return kProductThreads + (group_tokens <= kStreamTokens ? 64 : 32);
}
constexpr uint32_t kProductBarrier = 1;  // __syncthreads is 0
constexpr uint32_t kRmsBarrier = 2;

// Floats between tokens in staging, of as many rows: a warp's stores then fall into 32 banks.
constexpr uint32_t staging_pitch(uint32_t rows) { return (rows + 15) / 16 * 16 + 4; }
constexpr uint32_t kStagingPitch = staging_pitch(64);

enum class StreamMode {
  kWhole,    // k in one go
  kChunked,  // chunks of k, added in their tree
};

struct StreamArgs {
  const void* bias;
  const void* residual;
  void* y;
  DType bias_type, residual_type, y_type;
  GpuProduct::Epilogue epilogue;
  size_t y_stride;

  uint32_t tokens, n, k, chunk, n_chunks;
  uint32_t tile_rows, tile_bytes, tiles, subtiles, n_slots, slot_bytes;
  uint32_t whole_pitch;  // of the sums of all tiles at once, staged in the ring; 0: no room there
  uint64_t w_policy;

  // kernels/gpu_product.h: GpuDeferredNorm, of this product's rows and of the one before.
  const void* norm_weight;
  void* scaled;
  float* squares;
  const float* x_squares;
  uint32_t x_parts;
  float eps;
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

// kParts blocks of a cluster share the same rows and take a part of k each; then they swap sums,
// and each writes its own of the tiles.
template <class T, int kTokens, int kTiles, int kParts, StreamMode kMode>
struct StreamBlock {
  static constexpr uint32_t kXBytes = kTokens * kSubtileBytes;
  static constexpr uint32_t kStagedTokens = kTokens < 32 ? kTokens : 32;
  static constexpr bool kDefers = kTokens <= kStreamTokens && kMode == StreamMode::kWhole;
  // Threads side by side that write rows; each takes every kTokenStep-th token.
  static constexpr uint32_t kRowThreads = kTokens <= 16 ? 64 : 32;
  static constexpr uint32_t kTokenStep = kProductThreads / kRowThreads;
  using Squares = float[kStagedTokens / kTokenStep];

  const StreamArgs& a;
  const CUtensorMap* w_map;
  const CUtensorMap* x_map;
  uint32_t ring, full, empty;       // addresses in shared memory
  uint32_t swap, arrived, drained;  // of kParts 2: the other block's sums, and their barriers
  uint32_t first_tile, my_tiles, first_token, rank;
  uint32_t first_subtile, my_subtiles;  // of each chunk
  float* inverse;                       // [kStreamTokens] 1 / rms of x where that is deferred, or 1
  float* ring_floats;                   // the ring's memory
  __device__ uint32_t passes() const { return (my_tiles + kTiles - 1) / kTiles; }
  __device__ uint32_t stages() const {
    return passes() * a.n_chunks * ((my_subtiles + a.subtiles - 1) / a.subtiles);
  }
  __device__ uint32_t tiles_in(uint32_t pass) const {
    return min(static_cast<uint32_t>(kTiles), my_tiles - pass * kTiles);
  }
  __device__ uint32_t subtiles_in(const StageCursor& at) const {
    return min(a.subtiles, my_subtiles - at.subtile);
  }
  __device__ uint32_t subtile_bytes() const { return kTiles * a.tile_bytes + kXBytes; }
  __device__ int k_of(const StageCursor& at, uint32_t s) const {
    return static_cast<int>(at.chunk * a.chunk + (first_subtile + at.subtile + s) * kSubtile);
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
    const uint32_t to = ring + slot * a.slot_bytes + kTiles * a.tile_bytes;
    for (uint32_t s = 0; s < subtiles_in(at); ++s)
      hopper::copy_tile(to + s * subtile_bytes(), x_map, k_of(at, s), static_cast<int>(first_token),
                        full + 8 * slot, hopper::kEvictNormal);
  }

  __device__ void feed() const {
    const uint32_t total = stages(), ahead = min(a.n_slots, total);
    StageCursor at;
    for (uint32_t i = 0; i < ahead; ++i, at.advance(a, my_subtiles)) {
      expect(at, i);
      load_w(at, i);
    }
    hopper::wait_for_previous();
    StageCursor x_at;
    for (uint32_t i = 0; i < ahead; ++i, x_at.advance(a, my_subtiles)) load_x(x_at, i);
    uint32_t slot = 0, parity = 0;
    for (uint32_t i = ahead; i < total; ++i, at.advance(a, my_subtiles)) {
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

  // --- The warp that finds x's rms, beside the product.

  __device__ void find_rms() const {
    constexpr uint32_t kColumns = kTokens < 32 ? kTokens : 32, kRows = 32 / kColumns, kBatch = 24;
    const uint32_t lane = threadIdx.x % 32, token = lane % kColumns;
    float sum = 0;
    for (uint32_t first = lane / kColumns; first < a.x_parts; first += kBatch * kRows) {
      float part[kBatch];
#pragma unroll
      for (uint32_t j = 0; j < kBatch; ++j) {
        const uint32_t at = first + j * kRows;
        part[j] = at < a.x_parts ? __ldcg(a.x_squares + at * kStreamTokens + token) : 0;
      }
#pragma unroll
      for (uint32_t j = 0; j < kBatch; ++j) sum += part[j];
    }
#pragma unroll
    for (uint32_t step = kColumns; step < 32; step *= 2)
      sum += __shfl_xor_sync(0xffffffff, sum, step);
    if (lane < kColumns)
      inverse[lane] = __fdiv_rn(1, __fsqrt_rn(__fdiv_rn(sum, static_cast<float>(a.k)) + a.eps));
    hopper::named_barrier_arrive(kRmsBarrier, kProductThreads + 32);
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

  // 16 elements of k for all tiles.
  __device__ __forceinline__ void multiply_step(uint32_t slot, uint32_t s, uint32_t step,
                                                float (&acc)[kTiles][kTokens / 2]) const {
    const uint32_t place = slot + s * subtile_bytes() + step * 32;
    const uint64_t b = hopper::swizzled_operand(place + kTiles * a.tile_bytes);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile)
      hopper::warpgroup_product(T{}, acc[tile],
                                hopper::swizzled_operand(place + tile * a.tile_bytes), b);
  }

  // All stages of one chunk of one pass: acc = w x over the chunk.
  __device__ __forceinline__ void multiply_chunk(Ring& ring_at,
                                                 float (&acc)[kTiles][kTokens / 2]) const {
#pragma unroll
    for (int i = 0; i < kTiles * kTokens / 2; ++i) acc[i / (kTokens / 2)][i % (kTokens / 2)] = 0;
    for (uint32_t subtile = 0; subtile < my_subtiles; subtile += a.subtiles) {
      hopper::barrier_wait(full + 8 * ring_at.slot, ring_at.parity);
      hopper::product_fence();
      const uint32_t count = min(a.subtiles, my_subtiles - subtile);
      const uint32_t slot = ring + ring_at.slot * a.slot_bytes;
      if constexpr (kMode == StreamMode::kChunked) {
        // Past the chunk's end stand the next chunk's elements.
        const uint32_t steps = min(4 * count, (a.chunk - subtile * kSubtile) / 16);
#pragma unroll 1
        for (uint32_t step = 0; step < steps; ++step) multiply_step(slot, step / 4, step % 4, acc);
      } else {
        for (uint32_t s = 0; s < count; ++s)  // past the end of k stand zeros
#pragma unroll
          for (uint32_t step = 0; step < 4; ++step) multiply_step(slot, s, step, acc);
      }
      hopper::product_commit();
      // At once, not a stage later: a slot that waits is a slot that does not fill.
      hopper::product_wait<0>();
      if (threadIdx.x % 32 == 0) hopper::barrier_arrive(empty + 8 * ring_at.slot);
      ring_at.next(a.n_slots);
    }
  }

  // Sums pass through shared memory: neighbouring threads then write neighbouring rows. After the
  // last pass the ring has room for all tiles; before, some tokens of a tile pass at a time.
  __device__ void write_tiles(const float (&acc)[kTiles][kTokens / 2], uint32_t pass,
                              float* staging, Squares& squares) const {
    if (kTiles > 1 && pass + 1 == passes() && a.whole_pitch > 0)
      write_at_once(acc, pass, squares);
    else
      write_by_tiles(acc, pass, staging, squares);
  }
  // First row of w of a pass's tile.
  __device__ uint32_t tile_row(uint32_t pass, uint32_t tile) const {
    return (first_tile + pass * kTiles + tile) * a.tile_rows;
  }
  __device__ static uint32_t warp_row() { return threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4; }
  __device__ static uint32_t token_of(uint32_t i) {  // of a thread's i-th sum of a tile
    return i / 4 * 8 + threadIdx.x % 4 * 2 + i % 2;
  }
  __device__ static uint32_t row_in_tile(uint32_t i) { return warp_row() + i / 2 % 2 * 8; }

  __device__ void write_at_once(const float (&acc)[kTiles][kTokens / 2], uint32_t pass,
                                Squares& squares) const {
    const uint32_t tiles = tiles_in(pass), pitch = a.whole_pitch;
    hopper::named_barrier(kProductBarrier, kProductThreads);  // the ring is not read any more
#pragma unroll
    for (uint32_t tile = 0; tile < kTiles; ++tile) {
      if (tile >= tiles || (kParts == 2 && tile % 2 != rank)) continue;
      float* const to = ring_floats + tile / kParts * a.tile_rows;
#pragma unroll
      for (uint32_t i = 0; i < kTokens / 2; ++i)
        if (row_in_tile(i) < a.tile_rows) to[token_of(i) * pitch + row_in_tile(i)] = acc[tile][i];
    }
    hopper::named_barrier(kProductBarrier, kProductThreads);
    if constexpr (kParts == 1) {
      write_staged(ring_floats, pitch, tile_row(pass, 0), tiles * a.tile_rows, first_token, kTokens,
                   squares);
    } else {
      for (uint32_t tile = rank; tile < tiles; tile += 2)
        write_staged(ring_floats + tile / 2 * a.tile_rows, pitch, tile_row(pass, tile), a.tile_rows,
                     first_token, kTokens, squares);
    }
  }
  // One loop over all, which the registers' fixed names make look like a search.
  __device__ void write_by_tiles(const float (&acc)[kTiles][kTokens / 2], uint32_t pass,
                                 float* staging, Squares& squares) const {
    constexpr uint32_t kRounds = kTokens / kStagedTokens;
#pragma unroll 1
    for (uint32_t now = 0; now < tiles_in(pass) * kRounds; ++now) {
      if (kParts == 2 && now / kRounds % 2 != rank) continue;
      hopper::named_barrier(kProductBarrier, kProductThreads);
#pragma unroll
      for (uint32_t at = 0; at < kTiles * kRounds; ++at) {
        if (at != now) continue;
#pragma unroll
        for (uint32_t i = 0; i < kStagedTokens / 2; ++i)
          staging[token_of(i) * kStagingPitch + row_in_tile(i)] =
              acc[at / kRounds][at % kRounds * kStagedTokens / 2 + i];
      }
      hopper::named_barrier(kProductBarrier, kProductThreads);
      write_staged(staging, kStagingPitch, tile_row(pass, now / kRounds), a.tile_rows,
                   first_token + now % kRounds * kStagedTokens, kStagedTokens, squares);
    }
  }
  // `rows` staged rows from `row` on, of `most` tokens from `token` on.
  __device__ void write_staged(const float* staging, uint32_t pitch, uint32_t row, uint32_t rows,
                               uint32_t token, uint32_t most, Squares& squares) const {
    const uint32_t tokens = token < a.tokens ? min(most, a.tokens - token) : 0;
    rows = row < a.n ? min(rows, a.n - row) : 0;
    if (a.epilogue == GpuProduct::kSwiglu)
      write_pairs(staging, pitch, row, rows / 2, token, tokens);
    else
      write_rows(staging, pitch, row, rows, token, tokens, squares);
  }
  // A sum with what is left of the norm.
  __device__ float normed(float sum, uint32_t t) const { return kDefers ? sum * inverse[t] : sum; }
  __device__ void write_pairs(const float* staging, uint32_t pitch, uint32_t row, uint32_t pairs,
                              uint32_t token, uint32_t tokens) const {
    constexpr uint32_t kStep = kProductThreads / 32, kBatch = kTokens <= 8 ? 2 : 4;
    for (uint32_t i = threadIdx.x % 32; i < pairs; i += 32) {
      const uint32_t at = row + 2 * i;
      for (uint32_t first = threadIdx.x / 32; first < tokens; first += kBatch * kStep) {
        float2 pair[kBatch];
#pragma unroll
        for (uint32_t j = 0; j < kBatch; ++j)
          pair[j] = *reinterpret_cast<const float2*>(staging + (first + j * kStep) * pitch + 2 * i);
#pragma unroll
        for (uint32_t j = 0; j < kBatch; ++j) {
          const uint32_t t = first + j * kStep;
          if (t >= tokens) break;
          store_float(
              a.y, a.y_type, (token + t) * a.y_stride + at / 2,
              silu_times(biased(normed(pair[j].x, t), at), biased(normed(pair[j].y, t), at + 1)));
        }
      }
    }
  }
  // Residuals are fetched some at a time: y may be the same memory, so no later load passes a
  // store.
  __device__ void write_rows(const float* staging, uint32_t pitch, uint32_t first_row,
                             uint32_t rows, uint32_t token, uint32_t tokens,
                             Squares& squares) const {
    constexpr uint32_t kBatch =
        kStagedTokens / kTokenStep < 8 ? kStagedTokens / kTokenStep : uint32_t{8};
    const bool adds = a.epilogue == GpuProduct::kAddResidual;
    for (uint32_t i = threadIdx.x % kRowThreads; i < rows; i += kRowThreads) {
      const uint32_t row = first_row + i;
      float weight = 0;
      if (kDefers && a.norm_weight != nullptr)
        weight = widen(static_cast<const T*>(a.norm_weight)[row]);
      for (uint32_t group = 0; group < tokens; group += kStagedTokens) {
#pragma unroll
        for (uint32_t first = 0; first < kStagedTokens; first += kBatch * kTokenStep) {
          const uint32_t t = group + first + threadIdx.x / kRowThreads;
          float residual[kBatch];
#pragma unroll
          for (uint32_t j = 0; j < kBatch; ++j)
            if (adds && t + j * kTokenStep < tokens)
              residual[j] = load_float(a.residual, a.residual_type,
                                       (token + t + j * kTokenStep) * a.y_stride + row);
#pragma unroll
          for (uint32_t j = 0; j < kBatch; ++j) {
            const uint32_t at = t + j * kTokenStep;
            if (at >= tokens) break;
            float value = biased(normed(staging[at * pitch + i], at), row);
            if (adds) value = residual[j] + value;
            store_float(a.y, a.y_type, (token + at) * a.y_stride + row, value);
            if (!kDefers || a.norm_weight == nullptr) continue;
            const float y = widen(narrow<T>(value));
            squares[first / kTokenStep + j] = fmaf(y, y, squares[first / kTokenStep + j]);
            static_cast<T*>(a.scaled)[size_t{at} * a.n + row] = narrow<T>(y * weight);
          }
        }
      }
    }
  }
  // This block's sums of squares, rows in one order for every launch.
  __device__ void write_squares(float* staging, const Squares& squares) const {
    constexpr uint32_t kWarps = kRowThreads / 32;  // that share a token
    const uint32_t warp = threadIdx.x / 32;
    hopper::named_barrier(kProductBarrier, kProductThreads);
#pragma unroll
    for (uint32_t j = 0; j < kStagedTokens / kTokenStep; ++j) {
      float sum = squares[j];
#pragma unroll
      for (uint32_t step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(0xffffffff, sum, step);
      if (threadIdx.x % 32 == 0)
        staging[warp % kWarps * kStagedTokens + warp / kWarps + j * kTokenStep] = sum;
    }
    hopper::named_barrier(kProductBarrier, kProductThreads);
    if (threadIdx.x >= kStagedTokens) return;
    float sum = staging[threadIdx.x];
    if constexpr (kWarps == 2) sum += staging[kStagedTokens + threadIdx.x];
    a.squares[blockIdx.y * kStreamTokens + threadIdx.x] = sum;
  }
  __device__ float biased(float sum, uint32_t row) const {
    return a.bias != nullptr ? sum + load_float(a.bias, a.bias_type, row) : sum;
  }

  __device__ void multiply(float* staging) const {
    Ring ring_at;
    Squares squares = {};
    for (uint32_t pass = 0; pass < passes(); ++pass) {
      float acc[kTiles][kTokens / 2];
      multiply_chunk(ring_at, acc);
      if constexpr (kMode == StreamMode::kChunked) add_chunks(ring_at, acc);
      if constexpr (kParts == 2) swap_sums(pass % 2, acc);
      if (kDefers && pass == 0 && a.x_squares != nullptr)
        hopper::named_barrier(kRmsBarrier, kProductThreads + 32);
      write_tiles(acc, pass, staging, squares);
    }
    if (kDefers && a.norm_weight != nullptr) write_squares(staging, squares);
  }
  // Sums of the tiles that the other block writes go there, and its sums of this block's tiles join
  // these: the first part of k plus the second.
  __device__ void swap_sums(uint32_t parity, float (&acc)[kTiles][kTokens / 2]) const {
    constexpr uint32_t kPerTile = kTokens / 2 * kProductThreads;
    const uint32_t other = rank ^ 1, mine = swap + 4 * threadIdx.x;
    const uint32_t theirs = hopper::address_in(mine, other);
    hopper::barrier_wait_cluster(drained, parity ^ 1);
#pragma unroll
    for (int i = 0; i < kTiles / 2 * kTokens / 2; ++i) {
      const int tile = i / (kTokens / 2) * 2, j = i % (kTokens / 2);
      const float sum = rank == 0 ? acc[tile + 1][j] : acc[tile][j];
      hopper::store_in(theirs + 4 * (tile / 2 * kPerTile + j * kProductThreads), sum);
    }
    hopper::barrier_arrive_in(hopper::address_in(arrived, other));
    hopper::barrier_wait_cluster(arrived, parity);
#pragma unroll
    for (int i = 0; i < kTiles / 2 * kTokens / 2; ++i) {
      const int tile = i / (kTokens / 2) * 2, j = i % (kTokens / 2);
      float sum;
      asm volatile("ld.shared.f32 %0, [%1];"
                   : "=f"(sum)
                   : "r"(mine + 4 * (tile / 2 * kPerTile + j * kProductThreads)));
      if (rank == 0)
        acc[tile][j] = acc[tile][j] + sum;
      else
        acc[tile + 1][j] = sum + acc[tile + 1][j];
    }
    hopper::barrier_arrive_in(hopper::address_in(drained, other));
  }
  // The other chunks join the first: partial sums wait one a level of the tree.
  __device__ void add_chunks(Ring& ring_at, float (&acc)[kTiles][kTokens / 2]) const {
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
      multiply_chunk(ring_at, acc);
    }
  }
};

// Blocks an SM that registers must allow: one where the sums alone take most of them.
constexpr int least_blocks(int tokens, int tiles) {
  return tokens <= 16 ? 3 : tokens * tiles >= 224 ? 1 : 2;
}

template <class T, int kTokens, int kTiles, int kParts, StreamMode kMode>
__global__ void __launch_bounds__(stream_threads(kTokens), least_blocks(kTokens, kTiles))
    stream_product(const __grid_constant__ CUtensorMap w_map,
                   const __grid_constant__ CUtensorMap x_map, const StreamArgs a) {
  extern __shared__ unsigned char shared[];
  __shared__ uint64_t full[kMaxSlots], empty[kMaxSlots], swap_barriers[2];
  __shared__ float staging[(kTokens < 32 ? kTokens : 32) * kStagingPitch];
  __shared__ float inverse[kStreamTokens];
  hopper::let_next_start();
  // The same for the whole warp, and known to be: matrix products may not stand in divergent code.
  const uint32_t warp = __shfl_sync(0xffffffff, threadIdx.x / 32, 0);

  unsigned char* ring = shared + (1024 - hopper::shared_address(shared) % 1024) % 1024;
  StreamBlock<T, kTokens, kTiles, kParts, kMode> block{a,
                                                       &w_map,
                                                       &x_map,
                                                       hopper::shared_address(ring),
                                                       hopper::shared_address(full),
                                                       hopper::shared_address(empty)};
  block.swap = block.ring + a.n_slots * a.slot_bytes;
  block.arrived = hopper::shared_address(swap_barriers);
  block.drained = block.arrived + 8;
  block.inverse = inverse;
  block.ring_floats = reinterpret_cast<float*>(ring);
  block.rank = blockIdx.y % kParts;
  block.first_tile = blockIdx.y / kParts * a.tiles;
  block.first_token = blockIdx.x * kTokens;
  block.my_tiles = min(a.tiles, (a.n + a.tile_rows - 1) / a.tile_rows - block.first_tile);
  const uint32_t subtiles = (a.chunk + kSubtile - 1) / kSubtile;
  block.first_subtile = block.rank * (subtiles / kParts);
  block.my_subtiles = block.rank + 1 == kParts ? subtiles - block.first_subtile : subtiles / kParts;

  if (threadIdx.x < kStreamTokens) inverse[threadIdx.x] = 1;
  if (threadIdx.x == kProductThreads) {
    hopper::prefetch_map(&w_map);
    hopper::prefetch_map(&x_map);
    for (uint32_t i = 0; i < a.n_slots; ++i) {
      hopper::barrier_init(block.full + 8 * i, 1);
      hopper::barrier_init(block.empty + 8 * i, kProductThreads / 32);
    }
    hopper::barrier_init(block.arrived, kProductThreads);
    hopper::barrier_init(block.drained, kProductThreads);
    hopper::barrier_init_fence();
  }
  __syncthreads();
  if constexpr (kParts > 1) {
    hopper::cluster_arrive();
    hopper::cluster_wait();
  }

  if (warp == kProductThreads / 32) {
    if (threadIdx.x == kProductThreads)
      block.feed();
    else
      hopper::wait_for_previous();
  } else if (warp > kProductThreads / 32) {
    hopper::wait_for_previous();
    if (block.kDefers && a.x_squares != nullptr) block.find_rms();
  } else {
    hopper::wait_for_previous();
    block.multiply(staging);
  }
  // No block may leave while another still writes to its memory or arrives at its barriers.
  if constexpr (kParts > 1) {
    __syncwarp();
    hopper::cluster_arrive();
    hopper::cluster_wait();
  }
}

}  // namespace weft::kernels
