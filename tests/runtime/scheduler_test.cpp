// The scheduler against a model that only checks what it is given: every row once and in order, no
// limit exceeded, no block in two hands, everything finishes.
#include "runtime/scheduler.h"

#include <gtest/gtest.h>

#include <deque>
#include <map>
#include <random>
#include <set>

#include "tests/support/small_model.h"

namespace weft::runtime {
namespace {

planner::Limits small_limits() { return test::small_limits(4, 64, 32); }

Request request_of(size_t n_prompt, size_t max_tokens, int32_t first = 0) {
  Request request;
  for (size_t i = 0; i < n_prompt; ++i) request.prompt.push_back(first + static_cast<int32_t>(i));
  request.max_tokens = max_tokens;
  return request;
}

// Stands for the ranks: keeps each slot's tokens and blocks, and answers each sampled row with a
// token that depends on the whole history, so that recomputation must rebuild it exactly.
class CheckingModel {
 public:
  explicit CheckingModel(const planner::Limits& limits)
      : limits_(limits), slots_(limits.max_sequences) {}

  void execute(const Batch& batch) {
    ASSERT_LE(batch.n_rows(), limits_.max_batch_tokens);
    ASSERT_LE(batch.entries.size(), limits_.max_sequences);
    size_t token = 0, block = 0;
    TokenResults results;
    results.batch = batch.id;
    std::set<int32_t> slots_in_batch;
    for (const BatchEntry& entry : batch.entries) {
      ASSERT_TRUE(slots_in_batch.insert(entry.slot).second);
      Slot& slot = slots_[static_cast<size_t>(entry.slot)];
      if (entry.starts) slot = Slot();
      ASSERT_EQ(static_cast<size_t>(entry.first_position), slot.tokens.size());
      for (int32_t i = 0; i < entry.n_blocks; ++i) slot.blocks.push_back(batch.blocks[block++]);
      ASSERT_LE(entry.n_rows, static_cast<int32_t>(limits_.prefill_chunk));
      if (entry.literal)
        for (int32_t i = 0; i < entry.n_rows; ++i) slot.tokens.push_back(batch.tokens[token++]);
      else
        slot.tokens.push_back(slot.last);
      ASSERT_GE(slot.blocks.size() * planner::kKvBlockTokens, slot.tokens.size());
      if (!entry.samples) continue;
      slot.last = answer(slot.tokens);
      results.slot.push_back(entry.slot);
      results.token.push_back(slot.last);
    }
    ASSERT_EQ(token, batch.tokens.size());
    ASSERT_EQ(block, batch.blocks.size());
    in_flight.push_back(results);
  }

  static int32_t answer(const std::vector<int32_t>& tokens) {
    uint32_t hash = 1;
    for (int32_t token : tokens) hash = hash * 31 + static_cast<uint32_t>(token);
    return static_cast<int32_t>(hash % 1000);
  }

  std::deque<TokenResults> in_flight;

 private:
  struct Slot {
    std::vector<int32_t> tokens;
    std::vector<int32_t> blocks;
    int32_t last = -1;
  };
  planner::Limits limits_;
  std::vector<Slot> slots_;
};

// Blocks held by sequences are disjoint, and with the free ones they are all there is.
void check_blocks(const Scheduler& scheduler, size_t n_sequences, size_t n_blocks) {
  std::set<int32_t> held;
  size_t n_held = 0;
  for (size_t i = 0; i < n_sequences; ++i) {
    const std::vector<int32_t>& blocks = scheduler.sequence(i).blocks;
    held.insert(blocks.begin(), blocks.end());
    n_held += blocks.size();
  }
  ASSERT_EQ(held.size(), n_held);
  ASSERT_EQ(n_held + scheduler.n_free_blocks(), n_blocks);
}

std::vector<int32_t> expected_output(const Request& request, size_t n) {
  std::vector<int32_t> tokens = request.prompt;
  for (size_t i = 0; i < n; ++i) tokens.push_back(CheckingModel::answer(tokens));
  return {tokens.begin() + static_cast<ptrdiff_t>(request.prompt.size()), tokens.end()};
}

std::vector<int32_t> output_of(const Scheduler& scheduler, size_t number) {
  const Sequence& sequence = scheduler.sequence(number);
  return {sequence.tokens.begin() + static_cast<ptrdiff_t>(sequence.n_prompt()),
          sequence.tokens.end()};
}

// Runs all to the end, taking results in only when nothing more can start (or at random).
void run_all(Scheduler& scheduler, const planner::Limits& limits, size_t n_sequences,
             std::mt19937& random) {
  CheckingModel model(limits);
  Batch batch;
  batch.reserve(limits);
  for (size_t steps = 0; !scheduler.finished(); ++steps) {
    ASSERT_LT(steps, 100000u);
    const bool started = random() % 3 != 0 && scheduler.next(batch);
    if (started) {
      model.execute(batch);
      if (testing::Test::HasFatalFailure()) return;
      ASSERT_LE(model.in_flight.size(), limits.batches_in_flight);
    } else if (!model.in_flight.empty()) {
      scheduler.apply(model.in_flight.front(), [](size_t, size_t) { return FinishReason::none; });
      model.in_flight.pop_front();
    }
    check_blocks(scheduler, n_sequences, limits.kv_blocks);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(Scheduler, GivesEveryRowOnceAndFinishesUnderRandomLimits) {
  for (uint32_t seed = 0; seed < 300; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    planner::Limits limits;
    limits.context = 64 + random() % 400;
    limits.max_sequences = 1 + random() % 6;
    limits.max_batch_tokens = limits.max_sequences + random() % 100;
    limits.prefill_chunk = 1 + random() % 70;
    limits.batches_in_flight = 1 + random() % 4;
    limits.kv_blocks = (limits.context + 63) / 64 + random() % 8;
    Scheduler scheduler(limits);
    std::vector<Request> requests;
    for (size_t i = 0, n = 1 + random() % 12; i < n; ++i) {
      requests.push_back(request_of(1 + random() % (limits.context - 1), 1 + random() % 90,
                                    static_cast<int32_t>(random() % 500)));
      scheduler.add(requests.back());
    }
    run_all(scheduler, limits, requests.size(), random);
    if (HasFatalFailure()) return;
    for (size_t i = 0; i < requests.size(); ++i) {
      EXPECT_EQ(scheduler.sequence(i).finish, FinishReason::length);
      const std::vector<int32_t> output = output_of(scheduler, i);
      const size_t room = limits.context - requests[i].prompt.size();
      EXPECT_EQ(output.size(), std::min(requests[i].max_tokens, room));
      EXPECT_EQ(output, expected_output(requests[i], output.size()));
    }
  }
}

// What waits ends at once; what runs goes on to its end, and the blocks all come back.
TEST(Scheduler, CancelsWhatWaits) {
  const planner::Limits limits = small_limits();
  Scheduler scheduler(limits);
  for (size_t i = 0; i < limits.max_sequences + 3; ++i) scheduler.add(request_of(5, 7));
  CheckingModel model(limits);
  Batch batch;
  batch.reserve(limits);
  ASSERT_TRUE(scheduler.next(batch));
  model.execute(batch);
  scheduler.cancel_waiting();
  while (!scheduler.finished()) {
    if (scheduler.next(batch)) {
      model.execute(batch);
      continue;
    }
    scheduler.apply(model.in_flight.front(), [](size_t, size_t) { return FinishReason::none; });
    model.in_flight.pop_front();
  }
  for (size_t i = 0; i < limits.max_sequences + 3; ++i) {
    const Sequence& sequence = scheduler.sequence(i);
    const bool ran = i < limits.max_sequences;
    EXPECT_EQ(sequence.finish, ran ? FinishReason::length : FinishReason::cancelled) << i;
    EXPECT_EQ(sequence.n_output(), ran ? 7u : 0u) << i;
  }
  EXPECT_EQ(scheduler.n_free_blocks(), limits.kv_blocks);
}

// At any moment, with batches in flight or none: after what is in flight nothing is left.
TEST(Scheduler, CancelsWhatRuns) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    SCOPED_TRACE(testing::Message() << "seed " << seed);
    std::mt19937 random(seed);
    planner::Limits limits = small_limits();
    limits.batches_in_flight = 1 + seed % 3;
    Scheduler scheduler(limits);
    for (size_t i = 0; i < 9; ++i) scheduler.add(request_of(1 + random() % 90, 1 + random() % 90));
    CheckingModel model(limits);
    Batch batch;
    batch.reserve(limits);
    const size_t n_before = random() % 60;
    for (size_t step = 0; !scheduler.finished(); ++step) {
      ASSERT_LT(step, n_before + 20) << "cancelled sequences go on";
      const bool cancels = step >= n_before;
      if (cancels) scheduler.cancel_idle();
      if (!cancels && scheduler.next(batch)) {
        model.execute(batch);
      } else if (!model.in_flight.empty()) {
        scheduler.apply(model.in_flight.front(), [&](size_t, size_t) {
          return cancels ? FinishReason::cancelled : FinishReason::none;
        });
        model.in_flight.pop_front();
      }
    }
    for (size_t i = 0; i < 9; ++i)
      EXPECT_NE(scheduler.sequence(i).finish, FinishReason::none) << "sequence " << i;
    EXPECT_EQ(scheduler.n_free_blocks(), limits.kv_blocks);
  }
}

TEST(Scheduler, PreemptsWhenBlocksRunOutAndRecomputes) {
  planner::Limits limits = small_limits();
  limits.kv_blocks = 8;  // prompts of 3 + 2 blocks; with their answers 7 + 5
  limits.batches_in_flight = 1;
  Scheduler scheduler(limits);
  const Request requests[] = {request_of(190, 200), request_of(120, 200)};
  for (const Request& request : requests) scheduler.add(request);
  std::mt19937 random(1);
  run_all(scheduler, limits, 2, random);
  EXPECT_GT(scheduler.n_preempted(), 0u);
  for (size_t i = 0; i < 2; ++i)
    EXPECT_EQ(output_of(scheduler, i), expected_output(requests[i], 200));
}

TEST(Scheduler, SpreadsDecodesOverTheBatchesInFlight) {
  const planner::Limits limits = small_limits();
  Scheduler scheduler(limits);
  for (int i = 0; i < 4; ++i) scheduler.add(request_of(3, 50));
  CheckingModel model(limits);
  Batch batch;
  const auto go_on = [](size_t, size_t) { return FinishReason::none; };
  ASSERT_TRUE(scheduler.next(batch));
  EXPECT_EQ(batch.entries.size(), 4u);  // all prompts in one batch
  model.execute(batch);
  scheduler.apply(model.in_flight.front(), go_on);
  ASSERT_TRUE(scheduler.next(batch));
  EXPECT_EQ(batch.entries.size(), 2u);
  ASSERT_TRUE(scheduler.next(batch));
  EXPECT_EQ(batch.entries.size(), 2u);
  EXPECT_FALSE(scheduler.next(batch)) << "two batches are in flight";
}

TEST(Scheduler, StopsWhereItIsAsked) {
  Scheduler scheduler(small_limits());
  scheduler.add(request_of(5, 50));
  CheckingModel model(small_limits());
  Batch batch;
  ASSERT_TRUE(scheduler.next(batch));
  model.execute(batch);
  scheduler.apply(model.in_flight.front(), [](size_t, size_t) { return FinishReason::stop; });
  EXPECT_TRUE(scheduler.finished());
  EXPECT_EQ(scheduler.sequence(0).finish, FinishReason::stop);
  EXPECT_EQ(scheduler.sequence(0).n_output(), 1u);
  EXPECT_EQ(scheduler.n_free_blocks(), small_limits().kv_blocks);
}

TEST(Scheduler, SaysWhyARequestCanNeverRun) {
  planner::Limits limits = small_limits();
  EXPECT_EQ(Scheduler::problem(request_of(0, 1), limits), "the prompt is empty");
  EXPECT_EQ(Scheduler::problem(request_of(511, 1), limits), "");
  EXPECT_EQ(Scheduler::problem(request_of(512, 1), limits),
            "the prompt has 512 tokens, the context 512: no room for an answer");
  limits.kv_blocks = 2;
  EXPECT_EQ(Scheduler::problem(request_of(128, 1), limits),
            "the prompt has 128 tokens, the KV cache of 2 blocks holds 128");
}

}  // namespace
}  // namespace weft::runtime
