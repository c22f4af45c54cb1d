// The wire form of a batch.
#include "runtime/batch.h"

#include "planner/plan_messages.h"
#include "runtime/wire.h"

namespace weft::runtime {
namespace {

struct Header {
  uint64_t id;
  uint32_t last;
  uint32_t n_entries;
  uint32_t n_tokens;
  uint32_t n_blocks;
  uint32_t n_starts;
  uint32_t unused;
};

// The planner counts messages without knowing these types.
static_assert(sizeof(Header) == planner::kBatchHeaderBytes);
static_assert(sizeof(BatchEntry) == planner::kBatchEntryBytes);
static_assert(sizeof(kernels::SamplingParams) == planner::kBatchStartBytes);

}  // namespace

void Batch::reserve(const planner::Limits& limits) {
  entries.reserve(limits.max_sequences);
  tokens.reserve(limits.max_batch_tokens);
  blocks.reserve(planner::most_batch_blocks(limits));
  starts.reserve(limits.max_sequences);
}

void Batch::clear() {
  last = false;
  entries.clear();
  tokens.clear();
  blocks.clear();
  starts.clear();
}

size_t Batch::n_rows() const {
  size_t n = 0;
  for (const BatchEntry& entry : entries) n += static_cast<size_t>(entry.n_rows);
  return n;
}

size_t Batch::n_samples() const {
  size_t n = 0;
  for (const BatchEntry& entry : entries) n += entry.samples;
  return n;
}

size_t Batch::max_bytes(const planner::Limits& limits) { return planner::batch_bytes(limits); }

size_t Batch::encode(std::span<std::byte> to) const {
  WireWriter out(to);
  const auto count = [](const auto& items) { return static_cast<uint32_t>(items.size()); };
  out.value(Header{id, last, count(entries), count(tokens), count(blocks), count(starts), 0});
  out.array(entries.data(), entries.size());
  out.array(tokens.data(), tokens.size());
  out.array(blocks.data(), blocks.size());
  out.array(starts.data(), starts.size());
  return out.bytes();
}

void Batch::decode(std::span<const std::byte> from) {
  WireReader in(from);
  const auto header = in.value<Header>();
  id = header.id;
  last = header.last != 0;
  in.array(entries, header.n_entries);
  in.array(tokens, header.n_tokens);
  in.array(blocks, header.n_blocks);
  in.array(starts, header.n_starts);
}

}  // namespace weft::runtime
