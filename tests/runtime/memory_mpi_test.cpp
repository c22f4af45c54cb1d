// The planner's memory of a rank against what the engine takes, on every rank of the job.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <optional>
#include <string>
#include <thread>

#include "kernels/sampling.h"
#include "planner/manual_plan.h"
#include "planner/memory_model.h"
#include "planner/plan_messages.h"
#include "runtime/engine.h"
#include "runtime/hf_config.h"
#include "tests/support/mpi_test.h"

namespace weft::runtime {
namespace {

using planner::ModelSpec;
using planner::Plan;
using weft::testing::session;

constexpr size_t kMib = size_t{1} << 20;
// Counted in kProcessBytes: what MPI takes on first use, the pages that arenas end in, objects.
constexpr size_t kSmallBytes = size_t{512} << 10;

// Bytes that the process asked for and has not given back: mapped ones, and of the heap only what
// is in use. 0 under allocators that do not tell (the sanitizers').
size_t bytes_held() {
  const struct mallinfo2 heap = mallinfo2();
  if (heap.uordblks == 0) return 0;
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * static_cast<size_t>(sysconf(_SC_PAGESIZE)) - heap.arena + heap.uordblks;
}

struct Case {
  const char* name;
  size_t context, max_sequences, max_batch_tokens, kv_blocks;
  DType weights;
};
constexpr Case kCases[] = {
    {"odd", 193, 3, 31, 17, DType::f32},
    {"small", 512, 4, 128, 32, DType::bf16},
    {"many sequences", 256, 1000, 1024, 1500, DType::bf16},
    {"long batches", 2048, 64, 4096, 512, DType::bf16},
};

Plan plan_for(const ModelSpec& spec, const Case& c, const std::string& layout) {
  planner::ManualOptions options;
  options.formats.weights = c.weights;
  options.context = c.context;
  options.max_sequences = c.max_sequences;
  options.max_batch_tokens = c.max_batch_tokens;
  options.prefill_chunk = std::min<size_t>(c.max_batch_tokens, 512);
  options.kv_blocks = c.kv_blocks;
  options.rank_memory_bytes = size_t{8} << 30;
  return planner::manual_plan(spec, planner::parse_layout(layout), options);
}

// What more scratch a rank of kAssumedThreads threads takes than one of a single thread.
size_t scratch_of_threads(const ModelSpec& spec, const Plan& plan, size_t stage) {
  const auto& stages = plan.replicas.front().stages;
  DecoderShape shape;
  shape.spec = spec;
  shape.shard = planner::shard_shapes(spec, stages[stage].tp, 0);
  shape.formats = plan.formats;
  shape.limits = plan.limits;
  const auto arena = [&](size_t threads) { return Activations(shape, threads).arena.bytes(); };
  const auto sampling = [&](size_t threads) {
    return stage + 1 == stages.size() ? kernels::sample_workspace_bytes(spec.vocab, threads) : 0;
  };
  constexpr size_t many = planner::kAssumedThreads;
  return arena(many) - arena(1) + sampling(many) - sampling(1);
}

void expect_predicted(const ModelSpec& spec, const Case& c, const std::string& layout) {
  const Plan plan = plan_for(spec, c, layout);
  const auto source = make_synthetic(spec, 3);
  // The C library keeps a thread's stack and arena for the next one; loading takes one thread.
  std::thread([] { std::string(100, 'x').shrink_to_fit(); }).join();
  const size_t before = bytes_held();
  EngineOptions options;
  options.results.n_top = planner::kMostTopTokens;
  Engine engine(session(), spec, plan, *source, options);
  std::optional<Scheduler> scheduler;
  if (session().rank() == 0) scheduler.emplace(plan.limits);
  const size_t held = bytes_held() - before;
  engine.close();

  const auto& stages = plan.replicas.front().stages;
  const auto rank = static_cast<size_t>(session().rank());
  const size_t stage = rank < stages.front().tp ? 0 : 1;
  const bool counts = rank == 0 || rank == stages.front().tp;  // the first of its stage
  const size_t actual = held + scratch_of_threads(spec, plan, stage);
  const size_t predicted = plan.predicted.rank_memory[stage].total() - planner::kProcessBytes;
  SCOPED_TRACE(fmt::format("{}, layout {}: predicted {} bytes, actual {}", c.name, layout,
                           predicted, actual));
  EXPECT_GE(predicted + kSmallBytes, actual);
  if (counts) {
    EXPECT_LE(predicted, actual + actual / 10 + kMib);
  }
}

TEST(MemoryModel, IsWhatTheEngineTakes) {
  if (bytes_held() == 0) GTEST_SKIP() << "this allocator does not tell what is in use";
  const ModelSpec spec = read_hf_config(WEFT_SOURCE_DIR "/configs/models/demo");
  const std::vector<std::string> layouts[] = {{"6x1"}, {"6x2", "3x1,3x1", "5x1,1x1"}, {"4x2,2x1"}};
  for (const std::string& layout : layouts[session().size() - 1])
    for (const Case& c : kCases) expect_predicted(spec, c, layout);
}

TEST(MemoryModel, MessagesAreThoseOfTheRuntime) {
  planner::Limits limits;
  limits.max_sequences = 5;
  const ResultShape shape{.logprobs = true, .n_top = planner::kMostTopTokens, .n_logits = 0};
  EXPECT_EQ(planner::result_bytes(limits), TokenResults::max_bytes(5, shape));
}

}  // namespace
}  // namespace weft::runtime
