// Packing: arrays of 32-bit integers, each from a multiple of 16 bytes.
#include "runtime/gpu_step_inputs.h"

#include <algorithm>
#include <cstring>

#include "planner/plan_messages.h"
#include "runtime/base/error.h"

namespace weft::runtime {
namespace {

using kernels::GpuTableEntry;
using kernels::GpuTile;

size_t array_bytes(size_t n, size_t each = sizeof(int32_t)) { return (n * each + 15) / 16 * 16; }

template <class T>
T* at(std::byte* base, size_t offset) {
  return reinterpret_cast<T*>(base + offset);
}

}  // namespace

GpuStepInputs::Places GpuStepInputs::places(StepRoom room) {
  const size_t rows = array_bytes(room.rows);
  return {0, rows, 2 * rows, 3 * rows, 3 * rows + array_bytes(room.samples)};
}

GpuStepInputs::GpuStepInputs(const planner::Limits& limits, GpuArena& arena)
    : limits_(limits), table_stride_(planner::context_blocks(limits)) {
  const size_t rows = std::max(limits.max_batch_tokens, 2 * limits.max_sequences);
  bytes_ = places({rows, 2 * limits.max_sequences}).end + array_bytes(rows) +
           array_bytes(kernels::gpu_tiles_at_most(rows), sizeof(GpuTile)) +
           array_bytes(planner::most_batch_blocks(limits), sizeof(GpuTableEntry));
  device_ = arena.take(bytes_);
  table_ = arena.take_of<int32_t>(limits.max_sequences * table_stride_);
  if (device_ == nullptr) return;  // only counted
  for (Turn& turn : turns_) turn.pinned = kernels::PinnedBuffer(bytes_);
}

const int32_t* GpuStepInputs::ids(StepRoom room) const {
  return device_at<int32_t>(places(room).ids);
}

kernels::GpuRows GpuStepInputs::rows(StepRoom room) const {
  const Places p = places(room);
  return {device_at<int32_t>(p.positions), device_at<int32_t>(p.sequence), table_, table_stride_,
          room.rows};
}

const int32_t* GpuStepInputs::sampled_rows(StepRoom room) const {
  return device_at<int32_t>(places(room).samples);
}

void GpuStepInputs::upload(const Batch& batch, const Slots& slots, std::span<const int32_t> ids,
                           StepRoom room, const GpuWait& wait, kernels::CudaStream stream) {
  Turn& turn = turns_[turn_++ % turns_.size()];
  wait.until(turn.copied);
  const size_t used = pack(turn.pinned.data(), batch, slots, ids, room);
  kernels::copy_bytes(device_, turn.pinned.data(), used, stream);
  turn.copied.record(stream);
  kernels::gpu_write_table(table_, device_at<GpuTableEntry>(entries_), n_entries_, stream);
}

size_t GpuStepInputs::pack(std::byte* to, const Batch& batch, const Slots& slots,
                           std::span<const int32_t> ids, StepRoom room) {
  const kernels::PagedRows rows = slots.rows();
  WEFT_EXPECT(rows.tokens <= room.rows && rows.table_stride == table_stride_);
  pack_rows(to, rows, ids, room);
  pack_samples(to, batch, room);
  size_t used = pack_attention(to, rows, places(room).end);
  used = pack_table(to, batch, slots, used);
  WEFT_EXPECT(used <= bytes_);
  return used;
}

void GpuStepInputs::pack_rows(std::byte* to, const kernels::PagedRows& rows,
                              std::span<const int32_t> ids, StepRoom room) {
  const Places p = places(room);
  const auto fill = [&](size_t offset, const int32_t* from, size_t n) {
    auto* values = at<int32_t>(to, offset);
    std::copy_n(from, n, values);
    std::fill(values + n, values + room.rows, -1);
  };
  fill(p.ids, ids.data(), ids.size());
  fill(p.positions, rows.positions, rows.tokens);
  fill(p.sequence, rows.sequence, rows.tokens);
  longest_ = 0;
  for (size_t t = 0; t < rows.tokens; ++t)
    longest_ = std::max(longest_, static_cast<size_t>(rows.positions[t]) + 1);
}

void GpuStepInputs::pack_samples(std::byte* to, const Batch& batch, StepRoom room) {
  auto* samples = at<int32_t>(to, places(room).samples);
  int32_t end = 0;
  size_t n = 0;
  for (const BatchEntry& entry : batch.entries) {
    end += entry.n_rows;
    if (entry.samples) samples[n++] = end - 1;
  }
  std::fill(samples + n, samples + room.samples, -1);
}

size_t GpuStepInputs::pack_attention(std::byte* to, const kernels::PagedRows& rows, size_t offset) {
  single_ = offset;
  tiles_ = single_ + array_bytes(rows.tokens);
  const size_t n_tiles = kernels::gpu_tiles_at_most(rows.tokens);
  counts_ = kernels::gpu_attention_rows(rows, {at<int32_t>(to, single_), rows.tokens},
                                        {at<GpuTile>(to, tiles_), n_tiles});
  return tiles_ + array_bytes(counts_.n_tiles, sizeof(GpuTile));
}

// The blocks that the batch has appended: the last ones of their slots' rows.
size_t GpuStepInputs::pack_table(std::byte* to, const Batch& batch, const Slots& slots,
                                 size_t offset) {
  const int32_t* table = slots.rows().block_table;
  entries_ = offset;
  n_entries_ = 0;
  auto* entries = at<GpuTableEntry>(to, offset);
  for (const BatchEntry& entry : batch.entries) {
    const size_t end = slots.n_blocks(entry.slot);
    const size_t row = static_cast<size_t>(entry.slot) * table_stride_;
    for (size_t i = end - static_cast<size_t>(entry.n_blocks); i < end; ++i)
      entries[n_entries_++] = {static_cast<int32_t>(row + i), table[row + i]};
  }
  return offset + array_bytes(n_entries_, sizeof(GpuTableEntry));
}

}  // namespace weft::runtime
