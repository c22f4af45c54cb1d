#include "launch/scale_run.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <chrono>
#include <functional>

#include "kernels/device.h"
#include "launch/bench_ceilings.h"
#include "launch/scale_prediction.h"
#include "planner/memory_model.h"
#include "runtime/base/error.h"
#include "runtime/base/pages.h"
#include "runtime/engine.h"
#include "runtime/step_driver.h"

namespace weft::launch {
namespace {

using runtime::StepDriver;

constexpr size_t kPrefills = 3;
constexpr size_t kPromptTokens[] = {5, 33, 70};
constexpr size_t kAnswerTokens = 12;
constexpr size_t kPromptBlocks = 5;  // that all of them hold at their ends
constexpr size_t kReadBytes = size_t{256} << 20;
constexpr int kReads = 4;

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

class LayoutRun {
 public:
  LayoutRun(const ScaleJob& job, const StageLayouts& layout, const std::vector<ScaleCase>& cases,
            const parallel::MpiSession& part)
      : job_(job), layout_(layout), cases_(cases), part_(part) {}

  ScaleMeasured run() {
    measured_.ms.resize(cases_.size());
    const planner::Numerics wanted = *job_.plan.numerics;
    const auto times = [&](runtime::Engine& engine, const planner::Plan& plan) {
      time_cases(engine, plan);
    };
    const auto answers = [&](runtime::Engine& engine, const planner::Plan& plan) {
      answer(engine, plan);
      if (wanted == planner::Numerics::invariant) time_cases(engine, plan);
    };
    with_engine(planner::Numerics::invariant, answers);
    if (wanted != planner::Numerics::invariant) with_engine(wanted, times);
    return std::move(measured_);
  }

 private:
  using Work = std::function<void(runtime::Engine&, const planner::Plan&)>;

  size_t blocks_of(const ScaleCase& one) const {
    return one.prefill ? StepDriver::prefill_blocks(one.tokens)
                       : StepDriver::decode_blocks(one.batch, one.tokens, job_.n_steps);
  }
  ScaleSchedule schedule(const ScaleCase& one) const {
    return schedule_of(one, layout_.size(), job_.prefill_chunk);
  }

  // Limits that hold all cases, and as many KV blocks as the largest that fits takes; `fits` by
  // case.
  planner::Plan make(planner::Numerics numerics) {
    PlanOptions asked = job_.plan;
    asked.layout = layout_text(layout_);
    asked.numerics = numerics;
    size_t rows = std::size(kPromptTokens), sequences = std::size(kPromptTokens), context = 128;
    for (const ScaleCase& one : cases_) {
      rows = std::max(rows, one.prefill ? schedule(one).prefill_chunk : one.batch);
      sequences = std::max(sequences, one.batch);
      context = std::max(context, blocks_of(one) / one.batch * planner::kKvBlockTokens);
    }
    asked.context = context;
    asked.max_sequences = sequences;
    asked.max_batch_tokens = asked.prefill_chunk = std::max(rows, sequences);
    asked.batches_in_flight = layout_.size();
    asked.kv_blocks = std::max((context - 1) / planner::kKvBlockTokens + 1, kPromptBlocks);
    asked.backend = job_.device.gpu ? planner::Backend::cuda : planner::Backend::cpu;
    planner::Plan plan =
        make_plan(asked, job_.spec, static_cast<size_t>(part_.size()), job_.rank_memory_bytes);
    size_t most = plan.limits.kv_blocks;
    fits_.clear();
    for (const ScaleCase& one : cases_) {
      plan.limits.kv_blocks = std::max(*asked.kv_blocks, blocks_of(one));
      fits_.push_back(
          planner::memory_problems(job_.spec, plan, job_.rank_memory_bytes, asked.backend).empty());
      if (fits_.back()) most = std::max(most, plan.limits.kv_blocks);
    }
    plan.limits.kv_blocks = most;
    planner::predict_memory(job_.spec, plan, asked.backend);
    return plan;
  }

  // The same on all ranks: a plan without room leaves the layout without figures.
  void with_engine(planner::Numerics numerics, const Work& work) {
    planner::Plan plan;
    try {
      plan = make(numerics);
    } catch (const Error& error) {
      if (part_.rank() == 0) spdlog::warn("{}", error.what());
      return;
    }
    runtime::EngineOptions options;
    options.n_threads = job_.n_threads;
    options.gpu = job_.device.gpu;
    options.shares_gpu = job_.device.n_sharing > 1;
    options.transport = job_.device_options.transport;
    options.graphs = job_.device_options.graphs;
    runtime::Engine engine(part_, job_.spec, plan, job_.source, options);
    engine.fill_cache();
    if (part_.rank() == 0) {
      spdlog::info("{}: loaded in {:.2f} s", layout_text(layout_), engine.load_report().seconds);
      work(engine, plan);
      engine.stop_followers();
    } else {
      engine.follow();
    }
    engine.close();
  }

  // Prompts of different lengths, together.
  void answer(runtime::Engine& engine, const planner::Plan& plan) {
    runtime::Scheduler scheduler(plan.limits);
    measured_.tokens.resize(std::size(kPromptTokens));
    for (const size_t n : kPromptTokens) {
      runtime::Request request;
      for (size_t i = 0; i < n; ++i)
        request.prompt.push_back(static_cast<int32_t>((31 * i + 7 * n + 3) % job_.spec.vocab));
      request.max_tokens = kAnswerTokens;
      scheduler.add(std::move(request));
    }
    engine.drive(scheduler, [&](size_t sequence, const runtime::TokenResults& results, size_t row) {
      measured_.tokens[sequence].push_back(results.token[row]);
      return runtime::FinishReason::none;
    });
  }

  void time_cases(runtime::Engine& engine, const planner::Plan& plan) {
    StepDriver driver(engine, job_.spec, plan.limits);
    for (size_t i = 0; i < cases_.size(); ++i) {
      if (!fits_[i]) continue;
      const ScaleCase& one = cases_[i];
      const ScaleSchedule how = schedule(one);
      measured_.ms[i] = median(
          one.prefill
              ? driver.prefill_ms(one.tokens, kPrefills, how.prefill_chunk, how.batches_in_flight)
              : driver.decode_ms(one.batch, one.tokens, job_.n_steps, how.batches_in_flight));
      spdlog::info("{}: {}: {:.3f} ms", layout_text(layout_), one.name(), *measured_.ms[i]);
    }
  }

  const ScaleJob& job_;
  const StageLayouts& layout_;
  const std::vector<ScaleCase>& cases_;
  const parallel::MpiSession& part_;
  std::vector<bool> fits_;
  ScaleMeasured measured_;
};

}  // namespace

// What all ranks of the layout agree has failed is the layout's; anything else ends the job.
ScaleMeasured measure_layout(const ScaleJob& job, const StageLayouts& layout,
                             const std::vector<ScaleCase>& cases, int tag) {
  const auto n = static_cast<int>(n_ranks(layout));
  if (job.all.rank() >= n) return {};
  const auto part = parallel::MpiSession::of_first(job.all, n, tag);
  ScaleMeasured measured;
  try {
    measured = LayoutRun(job, layout, cases, *part).run();
  } catch (const parallel::AgreedError& error) {
    measured.ms.assign(cases.size(), std::nullopt);
    measured.failure = error.what();
  }
  part->close();
  return measured;
}

double read_gbps(const Device& device, size_t n_threads) {
  if (device.gpu) return measure_read_rate() * 1e-9;
  kernels::ThreadPool pool(n_threads);
  const Pages pages(kReadBytes);
  auto* words = reinterpret_cast<uint64_t*>(pages.data());
  const size_t n = kReadBytes / sizeof(uint64_t);
  constexpr size_t kGrain = 4096;
  pool.split(n, kGrain, [&](size_t begin, size_t end) {
    for (size_t i = begin; i < end; ++i) words[i] = i;
  });
  std::vector<uint64_t> sums(n / kGrain);
  double best = 0;
  for (int pass = 0; pass < kReads; ++pass) {
    const auto start = std::chrono::steady_clock::now();
    pool.split(n, kGrain, [&](size_t begin, size_t end) {
      uint64_t sum = 0;
      for (size_t i = begin; i < end; ++i) sum ^= words[i];
      sums[begin / kGrain] = sum;  // so that the reads are not left out
    });
    const std::chrono::duration<double> passed = std::chrono::steady_clock::now() - start;
    best = std::max(best, static_cast<double>(kReadBytes) / passed.count() * 1e-9);
  }
  if (std::count(sums.begin(), sums.end(), UINT64_MAX) == static_cast<ptrdiff_t>(sums.size()))
    throw run_error("the memory did not hold what was written");
  return best;
}

}  // namespace weft::launch
