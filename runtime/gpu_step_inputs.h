// What a step's kernels read of its batch, packed in pinned memory and copied to the GPU in one
// piece; and the block tables there, which only batches' deltas change.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "kernels/gpu_attention.h"
#include "kernels/gpu_rows.h"
#include "planner/plan.h"
#include "runtime/batch.h"
#include "runtime/gpu_arena.h"
#include "runtime/gpu_wait.h"
#include "runtime/slots.h"

namespace weft::runtime {

// Rows and samples that arrays have room for: a batch's own numbers, or those of a graph, whose
// rest is padding.
struct StepRoom {
  size_t rows = 0;
  size_t samples = 0;
};

class GpuStepInputs {
 public:
  GpuStepInputs(const planner::Limits& limits, GpuArena& arena);

  // Packs a batch and enqueues its copy, and what it adds to the tables. `ids`: of the rows, or
  // empty where a stage takes none. Waits, with `wait`, for the copy of the batch before the last.
  void upload(const Batch& batch, const Slots& slots, std::span<const int32_t> ids, StepRoom room,
              const GpuWait& wait, kernels::CudaStream stream);

  // Device memory of the batch that was uploaded with the same room.
  const int32_t* ids(StepRoom room) const;
  kernels::GpuRows rows(StepRoom room) const;
  const int32_t* sampled_rows(StepRoom room) const;  // −1 in padding
  // Of the last upload: how attention sorts its rows. Not for graphs, whose rows are all single.
  const int32_t* single() const { return device_at<int32_t>(single_); }
  const kernels::GpuTile* tiles() const { return device_at<kernels::GpuTile>(tiles_); }
  kernels::GpuRowCounts counts() const { return counts_; }
  // Of the longest sequence in the last upload.
  size_t longest_context() const { return longest_; }

 private:
  // Byte offsets of the arrays, one after the other.
  struct Places {
    size_t ids, positions, sequence, samples, end;
  };
  static Places places(StepRoom room);
  template <class T>
  const T* device_at(size_t offset) const {
    return reinterpret_cast<const T*>(device_ + offset);
  }
  size_t pack(std::byte* to, const Batch& batch, const Slots& slots, std::span<const int32_t> ids,
              StepRoom room);
  void pack_rows(std::byte* to, const kernels::PagedRows& rows, std::span<const int32_t> ids,
                 StepRoom room);
  void pack_samples(std::byte* to, const Batch& batch, StepRoom room);
  size_t pack_attention(std::byte* to, const kernels::PagedRows& rows, size_t offset);
  size_t pack_table(std::byte* to, const Batch& batch, const Slots& slots, size_t offset);

  planner::Limits limits_;
  size_t table_stride_;
  size_t bytes_;
  std::byte* device_;
  int32_t* table_;  // [max_sequences, table_stride]
  struct Turn {
    kernels::PinnedBuffer pinned;
    kernels::GpuEvent copied;
  };
  std::array<Turn, 2> turns_;
  size_t turn_ = 0;
  kernels::GpuRowCounts counts_;
  size_t single_ = 0, tiles_ = 0;  // byte offsets, of the last upload
  size_t entries_ = 0, n_entries_ = 0;
  size_t longest_ = 0;
};

}  // namespace weft::runtime
