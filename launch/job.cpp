// `weft run`: agree on everything that can be wrong, load, answer, print.
#include "launch/job.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>

#include "kernels/gpu_device.h"
#include "launch/drain_report.h"
#include "launch/model_source.h"
#include "launch/step_limit.h"
#include "parallel/gather.h"
#include "planner/plan_messages.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/progress.h"
#include "runtime/base/sha256.h"
#include "runtime/base/text.h"
#include "runtime/safetensors_writer.h"

namespace weft::launch {
namespace {

size_t least_rank_memory(const parallel::MpiSession& session, const Device& device) {
  size_t mine = machine_memory_bytes() / static_cast<size_t>(session.node_size());
  if (device.gpu) {
    parallel::agree(session, [&] { kernels::select_gpu(*device.gpu); });
    mine = gpu_rank_memory(session, device);
  }
  const std::vector<size_t> all = parallel::gather(session, mine);
  return *std::min_element(all.begin(), all.end());
}

// The GPU's attention has one type for activations, keys and values.
void check_gpu_formats(const planner::Plan& plan) {
  const planner::Formats& formats = plan.formats;
  for (const DType kv : {formats.kv_key, formats.kv_value})
    if (kv != formats.activations)
      throw input_error(
          "the plan keeps keys or values in {} beside activations in {}, which GPUs don't execute "
          "yet: run it with --backend cpu",
          dtype_name(kv), dtype_name(formats.activations));
}

// An output among the model's files could replace one of them.
void check_output(const std::string& path, const std::string& model) {
  namespace fs = std::filesystem;
  check_writable(path);
  std::error_code ignored;
  const fs::path folder = fs::absolute(path, ignored).parent_path();
  if (fs::equivalent(folder, model, ignored))
    throw input_error("{} would lie in the model's folder: write it elsewhere", path);
}

}  // namespace

Job::Job(RankProcess& process, const RunOptions& options)
    : process_(process),
      session_(process.session),
      guardian_(process.guardian),
      options_(options),
      preflight_(process, options.preflight_limit_s) {}

void Job::run() {
  set_up();
  start_engine();
  if (leads()) {
    answer();
    engine_->stop_followers();
  } else {
    engine_->follow();
  }
  report_stages();
  parallel::agree(session_, [&] {
    if (leads()) finish();
  });
  engine_->close();
}

// The quick part of preflight with what a run needs beside; then the full part where it was asked
// for.
void Job::set_up() {
  using parallel::SetupStep;
  preflight_.versions();
  preflight_.step(SetupStep::model, [&] { spec_ = runtime::read_model(options_.model); });
  preflight_.same(planner::facts_sha256(spec_), "other model facts");
  const std::string asked =
      fmt::format("{} {} {} {}", options_.weights, options_.logits.empty(),
                  options_.logprobs.value_or(SIZE_MAX), options_.preflight == PreflightLevel::full);
  preflight_.same(sha256_hex(asked), "another --weights, --logits, --logprobs or --preflight");
  preflight_.early_places();
  take_device();
  rank_memory_bytes_ = least_rank_memory(session_, device_);
  preflight_.step(SetupStep::inputs, [&] { check_everything(); });
  std::string fingerprint;
  preflight_.step(SetupStep::checkpoint, [&] { fingerprint = source_->fingerprint(); });
  preflight_.same(fingerprint, "other weights");
  const std::string yaml = parallel::broadcast_text(session_, planner::to_yaml(plan_));
  if (!leads()) plan_ = planner::parse_plan_yaml(yaml, "the plan from rank 0");
  prove();
}

void Job::take_device() {
  device_ = choose_device(session_, process_.binding, options_.device);
  guardian_.rename(device_.name);
}

void Job::prove() {
  const auto show = [](std::string_view what, std::string lines) {
    if (lines.empty()) return;
    lines.pop_back();  // the log ends its lines itself
    spdlog::info("{}:\n{}", what, lines);
  };
  preflight_.places(plan_, takes_nccl(device_, session_.size(), options_.device));
  if (device_.gpu) {  // the plan's groups may have moved this rank to another
    take_device();
    preflight_.step(parallel::SetupStep::devices, [&] { kernels::select_gpu(*device_.gpu); });
  }
  const bool full = options_.preflight == PreflightLevel::full;
  if (leads() && session_.size() > 1 && (full || preflight_.worth_showing()))
    show("ranks and their places", places_text(preflight_.facts()));
  if (!full) return;
  preflight_.messages(plan_, device_, options_.device);
  if (leads()) show("edges between stages", edges_text(preflight_.edges()));
}

// Every rank opens the weights; rank 0 also makes the plan and reads tokenizer and prompts. Nothing
// is allocated or written before all of it is right.
void Job::check_everything() {
  Problems problems;
  problems.passes([&] {
    source_ = open_weights(parse_weights(options_.weights, options_.model), options_.model, spec_);
  });
  if (leads()) {
    const auto n_ranks = static_cast<size_t>(session_.size());
    PlanOptions asked = options_.plan;
    if (device_.gpu) asked.backend = planner::Backend::cuda;
    const bool planned = problems.passes([&] {
      plan_ = make_plan(asked, spec_, n_ranks, rank_memory_bytes_);
      if (device_.gpu) check_gpu_formats(plan_);
    });
    const bool read = problems.passes([&] { tokenizer_ = open_tokenizer(options_.model, spec_); });
    for (const std::string& path : {options_.logits, options_.dump_plan})
      if (!path.empty()) problems.passes([&] { check_output(path, options_.model); });
    if (planned && read) problems.passes([&] { prepare_prompts(problems); });
  }
  std::error_code ignored;
  if (!options_.logits.empty() && !options_.dump_plan.empty() &&
      std::filesystem::weakly_canonical(options_.logits, ignored) ==
          std::filesystem::weakly_canonical(options_.dump_plan, ignored))
    problems.add(fmt::format("--logits and --dump-plan both write {}", options_.logits));
  problems.refuse("can't run");
  if (leads() && !options_.dump_plan.empty())
    write_file(options_.dump_plan, planner::to_yaml(plan_));
}

void Job::prepare_prompts(Problems& problems) {
  const runtime::GenerationDefaults defaults = generation_defaults(options_.model);
  eos_ids_ = defaults.eos_ids;
  if (tokenizer_ == nullptr)
    spdlog::warn(
        "{} has no tokenizer.json: the prompt's bytes are taken as token ids, and no text "
        "comes out",
        options_.model);
  for (const int32_t id : eos_ids_)
    if (id < 0 || static_cast<size_t>(id) >= spec_.vocab)
      spdlog::warn(
          "the end-of-sequence token {} is not below the vocabulary's {}: nothing ends by it", id,
          spec_.vocab);
  check_results_size(problems);
  scheduler_ = std::make_unique<runtime::Scheduler>(plan_.limits);
  std::vector<Prompt> prompts = read_prompts(options_, default_ask(options_, defaults));
  if (options_.stream && (prompts.size() > 1 || tokenizer_ == nullptr))
    problems.add("--stream shows the text of one prompt: it takes a tokenizer and no second one");
  const size_t most_top = std::min(planner::kMostTopTokens, spec_.vocab);
  if (options_.logprobs.value_or(0) > most_top)
    problems.add(
        fmt::format("--logprobs {} is more than {}: the plan's buffers hold {} tokens a "
                    "position, and the vocabulary {}",
                    *options_.logprobs, most_top, planner::kMostTopTokens, spec_.vocab));
  for (Prompt& prompt : prompts) add_prompt(std::move(prompt), problems);
}

runtime::ResultShape Job::result_shape() const {
  runtime::ResultShape shape;
  shape.logprobs = options_.logprobs.has_value();
  shape.n_top = options_.logprobs.value_or(0);
  shape.n_logits = options_.logits.empty() ? 0 : spec_.vocab;
  return shape;
}

// What the last stage sends for a batch is one message, whose size MPI counts in an int.
void Job::check_results_size(Problems& problems) const {
  const size_t n = plan_.limits.max_sequences;
  const size_t bytes = runtime::TokenResults::max_bytes(n, result_shape());
  if (bytes <= planner::kMostMessageBytes) return;
  const size_t each = bytes / n;
  problems.add(fmt::format(
      "the results of {} sequences, {} each with --logits or --logprobs, are more than a message's "
      "{}: give --max-sequences {} or fewer",
      n, human_bytes(each), human_bytes(planner::kMostMessageBytes),
      planner::kMostMessageBytes / each - 1));
}

void Job::add_prompt(Prompt prompt, Problems& problems) {
  runtime::Request request;
  request.prompt = encode_prompt(prompt, tokenizer_.get());
  request.sampling = prompt.ask.sampling;
  request.max_tokens = prompt.ask.max_tokens;
  std::string why = runtime::Scheduler::problem(request, plan_.limits);
  const auto beyond = [&](int32_t id) { return static_cast<size_t>(id) >= spec_.vocab; };
  const auto bad = std::find_if(request.prompt.begin(), request.prompt.end(), beyond);
  if (bad != request.prompt.end())
    why = fmt::format("token id {} is not below the vocabulary's {}", *bad, spec_.vocab);
  if (!prompt.ask.stops.empty() && tokenizer_ == nullptr) why = "stop strings need a tokenizer";
  if (!why.empty()) {
    problems.add(fmt::format("prompt {}: {}", completions_.size(), why));
    return;
  }
  Completion completion;
  completion.n_prompt = request.prompt.size();
  if (tokenizer_ != nullptr) completion.text.emplace(*tokenizer_, prompt.ask.stops);
  completion.prompt = std::move(prompt);
  completions_.push_back(std::move(completion));
  const size_t number = scheduler_->add(std::move(request));
  const size_t n_tokens = scheduler_->sequence(number).request.max_tokens;
  const size_t n_asked = completions_.back().prompt.ask.max_tokens;
  if (n_tokens < n_asked)
    spdlog::warn("prompt {}: {} tokens fit in the context and the KV blocks, of {} asked for",
                 number, n_tokens, n_asked);
  completions_.back().ids.reserve(n_tokens);
  if (options_.logprobs) completions_.back().logprobs.reserve(n_tokens);
}

void Job::start_engine() {
  runtime::EngineOptions engine;
  engine.n_threads = threads_of_rank(session_, options_.threads);
  engine.results = result_shape();
  if (leads() && plan_.replicas.front().count > 1)
    spdlog::info("this job is one of the plan's {} replicas; start a job for each",
                 plan_.replicas.front().count);
  const std::vector<size_t> threads = parallel::gather(session_, engine.n_threads);
  engine.watch = guardian_.watch();
  const size_t least_threads = device_.gpu ? 0 : *std::min_element(threads.begin(), threads.end());
  engine.watch.set_limit(step_limit_s(spec_, plan_, least_threads, options_.step_limit_s));
  engine.drain_s = options_.drain_s;
  engine.gpu = device_.gpu;
  engine.shares_gpu = device_.n_sharing > 1;
  engine.transport = options_.device.transport;
  engine.graphs = options_.device.graphs;
  engine.map_files = options_.mmap;
  guardian_.set_drain_grace(options_.drain_s);
  Progress progress("loading weights");
  if (leads()) engine.progress = [&](size_t done, size_t total) { progress.show(done, total); };
  engine_ = std::make_unique<runtime::Engine>(session_, spec_, plan_, *source_, engine);
  report_load();
}

void Job::report_load() const {
  size_t useful = 0, read = 0, mapped = 0;
  for (const runtime::LoadReport& report : parallel::gather(session_, engine_->load_report())) {
    useful += report.useful_bytes;
    read += report.read_bytes;
    mapped += report.mapped_bytes;
  }
  if (!leads()) return;
  if (device_.gpu) spdlog::info("rank 0 on {} ({})", device_.name, device_.product);
  spdlog::info("layout {}: loaded {} useful, {} read, in {:.2f} s; {}{} threads on rank 0",
               planner::layout_text(plan_), human_bytes(useful), human_bytes(read),
               engine_->load_report().seconds,
               mapped == 0 ? "" : human_bytes(mapped) + " of it mapped in place; ",
               engine_->n_threads());
}

// What each stage's first rank did with its time.
void Job::report_stages() {
  const auto all = parallel::gather(session_, engine_->times());
  if (!leads()) return;
  report_.stages = make_reports(plan_, all);
  for (const StageReport& stage : report_.stages) spdlog::info("{}", to_text(stage));
}

void Job::answer() {
  report_ = {planner::layout_text(plan_), plan_.predicted.speed, {}};
  const Clock::time_point now = Clock::now();
  for (Completion& completion : completions_) completion.received = now;
  engine_->drive(*scheduler_,
                 [&](size_t sequence, const runtime::TokenResults& results, size_t row) {
                   print_finished();
                   return take_token(sequence, results, row);
                 });
  print_finished();
  if (scheduler_->n_preempted() > 0)
    spdlog::info("{} times a sequence gave way for want of KV blocks and was computed again",
                 scheduler_->n_preempted());
}

runtime::FinishReason Job::take_token(size_t sequence, const runtime::TokenResults& results,
                                      size_t row) {
  Completion& completion = completions_[sequence];
  const int32_t token = results.token[row];
  completion.last_token = Clock::now();
  if (completion.ids.empty()) completion.first_token = completion.last_token;
  completion.ids.push_back(token);
  if (options_.logprobs) completion.logprobs.push_back(logprobs_of(results, row));
  const auto logits = results.logits.begin() + static_cast<ptrdiff_t>(row * results.shape.n_logits);
  completion.logits.insert(completion.logits.end(), logits,
                           logits + static_cast<ptrdiff_t>(results.shape.n_logits));

  const bool is_eos = std::find(eos_ids_.begin(), eos_ids_.end(), token) != eos_ids_.end();
  if (is_eos && !completion.prompt.ask.ignore_eos) return runtime::FinishReason::stop;
  if (!completion.text) return runtime::FinishReason::none;
  show_piece(completion.text->push(token));
  return completion.text->stopped() ? runtime::FinishReason::stop : runtime::FinishReason::none;
}

// Completions leave in the prompts' order, each as soon as those before it are out: a failure late
// in a long file loses none of them. The last object of --json waits for the stages' times.
void Job::print_finished() {
  using runtime::FinishReason;
  for (; n_printed_ < completions_.size(); ++n_printed_) {
    const FinishReason finish = scheduler_->sequence(n_printed_).finish;
    if (finish == FinishReason::none) return;
    const bool is_last = n_printed_ + 1 == completions_.size();
    if (is_last && options_.json && report_.stages.empty()) return;
    Completion& completion = completions_[n_printed_];
    completion.finish = finish;
    if (completion.text && !completion.text->stopped()) show_piece(completion.text->finish());
    print(completion, n_printed_);
  }
}

void Job::show_piece(const std::string& piece) const {
  if (!options_.stream || piece.empty()) return;
  fwrite(piece.data(), 1, piece.size(), stdout);
  fflush(stdout);
}

void Job::print(const Completion& completion, size_t index) const {
  if (options_.json) {
    fmt::print("{}\n", completion_json(completion, index, report_, options_.logprobs.has_value()));
  } else {
    if (completions_.size() > 1) fmt::print("--- prompt {} ---\n", index);
    if (options_.stream)
      fmt::print("\n");  // the text is out
    else
      fmt::print("{}\n", completion.text ? completion.text->text()
                                         : fmt::format("{}", fmt::join(completion.ids, " ")));
  }
  if (std::fflush(stdout) != 0 || std::ferror(stdout) != 0)
    throw run_error("cannot write to stdout");
}

void Job::finish() {
  print_finished();
  size_t n_tokens = 0;
  for (const Completion& completion : completions_) n_tokens += completion.ids.size();
  if (!options_.logits.empty()) write_logits();
  const std::string left = drain_report(completions_, engine_->drained_by());
  if (!left.empty()) spdlog::warn("{}", left);
  if (completions_.front().ids.empty()) return;
  const Completion& first = completions_.front();
  const std::optional<double> tpot = first.tpot_ms();
  spdlog::info("{} {}, {} tokens; the first: {} tokens in, {} out, first token after {:.1f} ms{}",
               completions_.size(), completions_.size() == 1 ? "prompt" : "prompts", n_tokens,
               first.n_prompt, first.ids.size(), first.ttft_ms(),
               tpot ? fmt::format(", then {:.2f} ms a token", *tpot) : std::string());
}

// "logits.N" [tokens, vocab] for prompt N.
void Job::write_logits() const {
  std::vector<runtime::NamedTensor> tensors;
  for (size_t i = 0; i < completions_.size(); ++i)
    tensors.push_back({fmt::format("logits.{}", i),
                       DType::f32,
                       {completions_[i].ids.size(), spec_.vocab},
                       completions_[i].logits.data()});
  runtime::write_safetensors(options_.logits, tensors);
}

}  // namespace weft::launch
