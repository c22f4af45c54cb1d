// Sums over the GPUs of one host that write into each other's memory, for messages so short that
// latency decides. Every 8 bytes travel as one 16-byte word whose halves carry the number of the
// operation (its epoch) beside their data: a word is there or not, so no fence, flag or barrier is
// waited for (the scheme of NCCL's LL protocol). One-shot: every rank sends all to all and adds up
// itself. Two-shot: every rank adds up one part and sends the sum to all. Both add in tree_sum's
// order: the same bits on every rank, and as on the CPU.
//
// All ranks launch the same operations in the same order with the same sizes, each on one stream at
// a time. The epoch is counted on the device, so that a replayed graph counts on. Memory has two
// halves, used in turn: a rank that sends epoch e + 2 has heard of epoch e + 1 from all, who had
// ended epoch e by then.
//
// A wait ends only when the word comes or `abort` is set; the sums are worthless then. On GPUs that
// ranks share, each wait costs time slices: right, but slow.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/tensor.h"

struct CUstream_st;

namespace weft::kernels {

inline constexpr int kMostPeers = 8;
inline constexpr size_t kMostPeerRows = 1024;  // of a sum with RMSNorm behind it

// A rank's own, on its GPU; cleared before the first operation.
struct PeerState {
  uint32_t epoch = 0;  // of the last operation
  uint32_t blocks_done = 0;
  uint32_t row_elements[kMostPeerRows] = {};  // summed so far
};

struct PeerGroup {
  void* memory[kMostPeers] = {};  // [ranks] exchange memory of each, as this process sees it;
                                  // cleared before the first operation
  size_t half_words = 0;          // 16-byte words in one half of each
  int rank = 0;
  int ranks = 1;
  PeerState* state = nullptr;
  const uint32_t* abort = nullptr;  // host memory that the GPU reads; not 0 ends all waits
};

inline constexpr size_t kPeerWordBytes = 16;
inline constexpr size_t kPeerPayloadBytes = 8;
inline constexpr size_t kPeerWordsCleared = 128;  // at the end of an operation; a half has some

constexpr size_t peer_words(size_t bytes) {
  return (bytes + kPeerPayloadBytes - 1) / kPeerPayloadBytes;
}
// Words of a half that a message of `bytes` takes.
constexpr size_t one_shot_words(int ranks, size_t bytes) {
  return static_cast<size_t>(ranks) * peer_words(bytes);
}
constexpr size_t two_shot_words(int ranks, size_t bytes) {
  const auto n = static_cast<size_t>(ranks);
  return 2 * n * ((peer_words(bytes) + n - 1) / n);
}
// The longest message that fits.
constexpr size_t one_shot_bytes(int ranks, size_t half_words) {
  return half_words / static_cast<size_t>(ranks) * kPeerPayloadBytes;
}
constexpr size_t two_shot_bytes(int ranks, size_t half_words) {
  const auto n = static_cast<size_t>(ranks);
  return half_words / (2 * n) * n * kPeerPayloadBytes;
}

struct GpuPeerSum {
  PeerGroup group;
  Out data;  // [n] f32, bf16 or f16: summed in place in float32, rounded once
  size_t n = 0;
  bool two_shot = false;
  bool dependent_launch = false;
};
void gpu_peer_sum(const GpuPeerSum& args, CUstream_st* stream);

// residual += sum of partial (+ bias), rounded once, as kernels/residual_add.h; then RMSNorm with
// the bits of kernels/gpu_rms_norm.h where a weight is given.
struct GpuPeerResidual {
  PeerGroup group;
  const float* partial = nullptr;  // [tokens, hidden]; left as it is
  In bias;                         // [hidden] or null
  Out residual;                    // [tokens, hidden]
  In norm_weight;                  // [hidden] or null; then tokens <= kMostPeerRows
  Out normed;                      // [tokens, hidden]
  float eps = 1e-6f;
  size_t tokens = 0;
  size_t hidden = 0;
  bool two_shot = false;
  bool dependent_launch = false;
};
void gpu_peer_residual(const GpuPeerResidual& args, CUstream_st* stream);

}  // namespace weft::kernels
