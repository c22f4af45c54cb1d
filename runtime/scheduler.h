// Decides which token rows run next: decode rows first, then prompt chunks, then new sequences,
// within the plan's limits. Continuous batching as in Orca (Yu et al., 2022) with the chunked
// prefill of Sarathi-Serve (Agrawal et al., 2024).
#pragma once

#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "planner/plan.h"
#include "runtime/batch.h"
#include "runtime/block_pool.h"
#include "runtime/sequence.h"
#include "runtime/token_results.h"

namespace weft::runtime {

class Scheduler {
 public:
  explicit Scheduler(const planner::Limits& limits);

  // Why a request can never run under these limits; empty where it can.
  static std::string problem(const Request& request, const planner::Limits& limits);

  // The sequence's number, 0, 1, 2, …; it waits its turn. max_tokens is lowered to what the context
  // and the cache hold. The request must have no problem().
  size_t add(Request request);

  // Fills the next batch; false when nothing can start now (all in flight, or no work). Sequences
  // whose tokens are on their way are left alone, except that prompt chunks may follow each other.
  bool next(Batch& batch);

  // Takes in the tokens of a batch, in the order of batches. `on_token(sequence, row)` is told each
  // token after it was appended, and answers why the sequence ends there (none: it goes on). The
  // length limits are the scheduler's own.
  template <class OnToken>
  void apply(const TokenResults& results, OnToken&& on_token) {
    begin_apply(results.batch);
    for (size_t row = 0; row < results.size(); ++row) {
      const size_t number = append(results.slot[row], results.token[row]);
      const FinishReason asked = on_token(number, row);
      end_token(number, asked);
    }
  }

  // Ends what waits for its turn (again), as cancelled.
  void cancel_waiting();
  // Ends also what runs, except that a sequence in a batch in flight ends by on_token's answer.
  void cancel_idle();

  const Sequence& sequence(size_t number) const { return *sequences_[number]; }
  bool finished() const { return waiting_.empty() && running_.empty(); }
  size_t n_in_flight() const { return in_flight_.size(); }
  size_t n_preempted() const { return n_preempted_; }
  size_t n_free_blocks() const { return pool_.n_free(); }

 private:
  void add_decodes(Batch& batch, size_t* budget);
  void add_prefills(Batch& batch, size_t* budget);
  void admit();
  void add_rows(Batch& batch, Sequence& sequence, size_t n_rows);
  bool make_room(size_t number);
  void preempt(size_t number);
  void release(size_t number);
  void begin_apply(uint64_t batch_id);
  size_t append(int32_t slot, int32_t token);
  void end_token(size_t number, FinishReason asked);

  planner::Limits limits_;
  BlockPool pool_;
  std::vector<std::unique_ptr<Sequence>> sequences_;
  std::deque<size_t> waiting_;       // numbers
  std::vector<size_t> running_;      // numbers, in order of admission
  std::vector<size_t> slot_owner_;   // [max_sequences] number
  std::vector<int32_t> free_slots_;  // a stack

  struct InFlight {
    uint64_t id = 0;
    std::vector<size_t> numbers;
  };
  std::vector<InFlight> in_flight_;  // oldest first
  std::vector<InFlight> spare_;      // their memory, to be used again
  uint64_t next_batch_ = 1;
  size_t n_preempted_ = 0;
};

}  // namespace weft::runtime
