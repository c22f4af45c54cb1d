// Continuous batching with chunked prefill and preemption by recomputation.
#include "runtime/scheduler.h"

#include <algorithm>

#include "runtime/base/error.h"

namespace weft::runtime {
namespace {

size_t blocks_for(size_t n_tokens) {
  return (n_tokens + planner::kKvBlockTokens - 1) / planner::kKvBlockTokens;
}

// Tokens a single sequence can ever hold.
size_t most_tokens(const planner::Limits& limits) {
  return std::min(limits.context, limits.kv_blocks * planner::kKvBlockTokens);
}

}  // namespace

Scheduler::Scheduler(const planner::Limits& limits) : limits_(limits), pool_(limits.kv_blocks) {
  running_.reserve(limits.max_sequences);
  slot_owner_.resize(limits.max_sequences);
  for (size_t i = limits.max_sequences; i > 0; --i)
    free_slots_.push_back(static_cast<int32_t>(i - 1));
  in_flight_.reserve(limits.batches_in_flight);
  spare_.resize(limits.batches_in_flight);
  for (InFlight& flight : spare_) flight.numbers.reserve(limits.max_sequences);
}

std::string Scheduler::problem(const Request& request, const planner::Limits& limits) {
  if (request.prompt.empty()) return "the prompt is empty";
  const size_t most = most_tokens(limits);
  if (request.prompt.size() < most) return {};
  if (most == limits.context)
    return fmt::format("the prompt has {} tokens, the context {}: no room for an answer",
                       request.prompt.size(), limits.context);
  return fmt::format("the prompt has {} tokens, the KV cache of {} blocks holds {}",
                     request.prompt.size(), limits.kv_blocks, most);
}

size_t Scheduler::add(Request request) {
  const std::string why_not = problem(request, limits_);
  if (!why_not.empty()) throw Error(why_not);
  auto sequence = std::make_unique<Sequence>();
  const size_t room = most_tokens(limits_) - request.prompt.size();
  request.max_tokens = std::min(request.max_tokens, room);
  sequence->tokens.reserve(request.prompt.size() + request.max_tokens);
  sequence->tokens = request.prompt;
  sequence->blocks.reserve(blocks_for(request.prompt.size() + request.max_tokens));
  sequence->request = std::move(request);
  sequences_.push_back(std::move(sequence));
  waiting_.push_back(sequences_.size() - 1);
  return sequences_.size() - 1;
}

bool Scheduler::next(Batch& batch) {
  if (in_flight_.size() == limits_.batches_in_flight) return false;
  batch.clear();
  in_flight_.push_back(std::move(spare_.back()));
  spare_.pop_back();
  size_t budget = limits_.max_batch_tokens;
  add_decodes(batch, &budget);
  admit();
  add_prefills(batch, &budget);
  if (batch.entries.empty()) {
    spare_.push_back(std::move(in_flight_.back()));
    in_flight_.pop_back();
    return false;
  }
  batch.id = next_batch_++;
  in_flight_.back().id = batch.id;
  return true;
}

// Decoding sequences are spread evenly over the batches in flight, so that every stage has work.
void Scheduler::add_decodes(Batch& batch, size_t* budget) {
  const auto decodes = [&](size_t number) { return sequences_[number]->decodes(); };
  const size_t n_decoding = std::count_if(running_.begin(), running_.end(), decodes);
  const size_t share = (n_decoding + limits_.batches_in_flight - 1) / limits_.batches_in_flight;
  for (size_t i = 0; i < running_.size() && batch.entries.size() < share && *budget > 0; ++i) {
    Sequence& sequence = *sequences_[running_[i]];
    if (!sequence.decodes() || sequence.n_in_flight > 0) continue;
    if (!make_room(running_[i])) continue;
    add_rows(batch, sequence, 1);
    --*budget;
    in_flight_.back().numbers.push_back(running_[i]);
  }
}

void Scheduler::add_prefills(Batch& batch, size_t* budget) {
  for (size_t number : running_) {
    Sequence& sequence = *sequences_[number];
    if (sequence.last_in_slot || sequence.n_remaining() == 0) continue;
    const size_t n = std::min({sequence.n_remaining(), limits_.prefill_chunk, *budget});
    if (n == 0) return;
    add_rows(batch, sequence, n);
    *budget -= n;
    in_flight_.back().numbers.push_back(number);
  }
}

// A sequence starts with the blocks of all its tokens so far, so that no prefill stops half-way;
// one block for each running sequence is left, or they would soon preempt each other.
void Scheduler::admit() {
  while (!waiting_.empty() && !free_slots_.empty()) {
    const size_t number = waiting_.front();
    Sequence& sequence = *sequences_[number];
    const size_t n_blocks = blocks_for(sequence.tokens.size());
    if (n_blocks + running_.size() > pool_.n_free()) return;
    for (size_t i = 0; i < n_blocks; ++i) sequence.blocks.push_back(pool_.take());
    sequence.slot = free_slots_.back();
    free_slots_.pop_back();
    slot_owner_[static_cast<size_t>(sequence.slot)] = number;
    waiting_.pop_front();
    running_.push_back(number);
  }
}

void Scheduler::add_rows(Batch& batch, Sequence& sequence, size_t n_rows) {
  BatchEntry entry;
  entry.slot = sequence.slot;
  entry.first_position = static_cast<int32_t>(sequence.n_scheduled);
  entry.n_rows = static_cast<int32_t>(n_rows);
  entry.starts = !sequence.started;
  entry.literal = !sequence.last_in_slot;
  entry.samples = n_rows == sequence.n_remaining();
  entry.output_index = static_cast<uint32_t>(sequence.n_output());
  if (entry.starts) {
    batch.starts.push_back(sequence.request.sampling);
    entry.n_blocks = static_cast<int32_t>(sequence.blocks.size());
    batch.blocks.insert(batch.blocks.end(), sequence.blocks.begin(), sequence.blocks.end());
  } else if (sequence.n_scheduled + n_rows > sequence.blocks.size() * planner::kKvBlockTokens) {
    entry.n_blocks = 1;
    sequence.blocks.push_back(pool_.take());
    batch.blocks.push_back(sequence.blocks.back());
  }
  const auto first = sequence.tokens.begin() + static_cast<ptrdiff_t>(sequence.n_scheduled);
  if (entry.literal)
    batch.tokens.insert(batch.tokens.end(), first, first + static_cast<ptrdiff_t>(n_rows));
  batch.entries.push_back(entry);
  sequence.n_scheduled += n_rows;
  sequence.n_in_flight += 1;
  sequence.started = true;
}

// Makes sure that a decode row has a block, taking one from the latest comer where none is free.
bool Scheduler::make_room(size_t number) {
  const Sequence& sequence = *sequences_[number];
  if (sequence.n_scheduled < sequence.blocks.size() * planner::kKvBlockTokens) return true;
  if (pool_.n_free() > 0) return true;
  for (size_t i = running_.size(); i > 0; --i) {
    const size_t victim = running_[i - 1];
    if (sequences_[victim]->n_in_flight > 0) continue;
    preempt(victim);
    return victim != number;
  }
  return false;
}

// The sequence will be computed again from its tokens, prompt and output alike.
void Scheduler::preempt(size_t number) {
  Sequence& sequence = *sequences_[number];
  release(number);
  sequence.n_scheduled = 0;
  sequence.last_in_slot = false;
  sequence.started = false;
  waiting_.push_front(number);
  ++n_preempted_;
}

void Scheduler::cancel_waiting() {
  for (const size_t number : waiting_) sequences_[number]->finish = FinishReason::cancelled;
  waiting_.clear();
}

void Scheduler::cancel_idle() {
  cancel_waiting();
  for (size_t i = running_.size(); i > 0; --i) {
    const size_t number = running_[i - 1];
    if (sequences_[number]->n_in_flight > 0) continue;
    release(number);
    sequences_[number]->finish = FinishReason::cancelled;
  }
}

void Scheduler::release(size_t number) {
  Sequence& sequence = *sequences_[number];
  pool_.give_back(sequence.blocks);
  sequence.blocks.clear();
  free_slots_.push_back(sequence.slot);
  sequence.slot = -1;
  running_.erase(std::find(running_.begin(), running_.end(), number));
}

void Scheduler::begin_apply(uint64_t batch_id) {
  WEFT_EXPECT(!in_flight_.empty() && in_flight_.front().id == batch_id);
  for (size_t number : in_flight_.front().numbers) sequences_[number]->n_in_flight -= 1;
  in_flight_.front().numbers.clear();
  spare_.push_back(std::move(in_flight_.front()));
  in_flight_.erase(in_flight_.begin());
}

size_t Scheduler::append(int32_t slot, int32_t token) {
  const size_t number = slot_owner_[static_cast<size_t>(slot)];
  Sequence& sequence = *sequences_[number];
  sequence.tokens.push_back(token);
  sequence.last_in_slot = true;
  return number;
}

void Scheduler::end_token(size_t number, FinishReason asked) {
  Sequence& sequence = *sequences_[number];
  const bool full = sequence.n_output() >= sequence.request.max_tokens;
  sequence.finish = asked != FinishReason::none ? asked
                    : full                      ? FinishReason::length
                                                : FinishReason::none;
  if (sequence.finish != FinishReason::none) release(number);
}

}  // namespace weft::runtime
