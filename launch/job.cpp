// `weft run`: agree on everything that can be wrong, load, answer, print.
#include "launch/job.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstdio>

#include "launch/model_source.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/log.h"
#include "runtime/base/progress.h"
#include "runtime/base/text.h"
#include "runtime/safetensors_writer.h"

namespace weft::launch {
namespace {

std::string joined(const std::vector<std::string>& problems) {
  std::string text;
  for (const std::string& problem : problems) text += "\n  " + problem;
  return text;
}

// All ranks must have read the same model; where they have not, all say so alike.
void compare_facts(const parallel::MpiSession& session, const std::string& hash) {
  std::string all(hash.size() * static_cast<size_t>(session.size()), '\0');
  const int n = static_cast<int>(hash.size());
  parallel::check(MPI_Allgather(hash.data(), n, MPI_CHAR, all.data(), n, MPI_CHAR, session.world()),
                  "MPI_Allgather");
  parallel::agree(session, [&] {
    if (all.compare(0, hash.size(), hash) != 0)
      throw input_error("this rank reads other model facts ({}) than rank 0 ({})",
                        hash.substr(0, 12), all.substr(0, 12));
  });
}

}  // namespace

Job::Job(const parallel::MpiSession& session, const RunOptions& options)
    : session_(session), options_(options) {}

void Job::run() {
  parallel::agree(session_, [&] { read_facts(); });
  compare_facts(session_, planner::facts_sha256(spec_));
  parallel::agree(session_, [&] {
    if (leads()) settle_plan();
  });
  broadcast_plan();
  parallel::agree(session_, [&] { open_source(); });
  parallel::agree(session_, [&] {
    if (leads()) prepare_prompts();
  });
  start_engine();
  if (leads()) {
    answer();
    engine_->stop_followers();
  } else {
    engine_->follow();
  }
  parallel::agree(session_, [&] {
    if (leads()) print();
  });
  engine_->close();
}

void Job::read_facts() {
  spec_ = runtime::read_model(options_.model);
  const std::vector<std::string> wrong = planner::problems(spec_);
  if (!wrong.empty()) throw input_error("{} can't be run:{}", options_.model, joined(wrong));
}

// Rank 0 makes or reads the plan; what can't be is refused there, before anything is allocated.
void Job::settle_plan() {
  const size_t rank_memory = machine_memory_bytes() / static_cast<size_t>(session_.node_size());
  plan_ = make_plan(options_.plan, spec_, static_cast<size_t>(session_.size()), rank_memory);
  if (!options_.dump_plan.empty()) write_file(options_.dump_plan, planner::to_yaml(plan_));
}

void Job::broadcast_plan() {
  std::string yaml = leads() ? planner::to_yaml(plan_) : std::string();
  auto bytes = static_cast<uint64_t>(yaml.size());
  parallel::check(MPI_Bcast(&bytes, 1, MPI_UINT64_T, 0, session_.world()), "MPI_Bcast");
  yaml.resize(bytes);
  parallel::check(MPI_Bcast(yaml.data(), static_cast<int>(bytes), MPI_CHAR, 0, session_.world()),
                  "MPI_Bcast");
  if (!leads()) plan_ = planner::parse_plan_yaml(yaml, "the plan from rank 0");
}

void Job::open_source() {
  source_ = open_weights(parse_weights(options_.weights, options_.model), options_.model, spec_);
}

void Job::prepare_prompts() {
  tokenizer_ = open_tokenizer(options_.model, spec_);
  const runtime::GenerationDefaults defaults = generation_defaults(options_.model);
  eos_ids_ = defaults.eos_ids;
  if (tokenizer_ == nullptr)
    spdlog::warn(
        "{} has no tokenizer.json: the prompt's bytes are taken as token ids, and no text "
        "comes out",
        options_.model);
  scheduler_ = std::make_unique<runtime::Scheduler>(plan_.limits);
  std::vector<std::string> wrong;
  for (Prompt& prompt : read_prompts(options_, default_ask(options_, defaults))) {
    const std::string name = fmt::format("prompt {}: ", completions_.size());
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
    if (!why.empty()) wrong.push_back(name + why);
    Completion completion;
    completion.n_prompt = request.prompt.size();
    completion.received = Clock::now();
    if (tokenizer_ != nullptr) completion.text.emplace(*tokenizer_, prompt.ask.stops);
    completion.prompt = std::move(prompt);
    completions_.push_back(std::move(completion));
    if (wrong.empty()) scheduler_->add(std::move(request));
  }
  if (!wrong.empty()) throw input_error("prompts that can't be run:{}", joined(wrong));
}

void Job::start_engine() {
  runtime::EngineOptions engine;
  engine.n_threads = threads_of_rank(options_.threads, static_cast<size_t>(session_.node_size()));
  engine.results.n_top = options_.logprobs.value_or(0);
  engine.results.n_logits = options_.logits.empty() ? 0 : spec_.vocab;
  Progress progress("loading weights");
  if (leads()) engine.progress = [&](size_t done, size_t total) { progress.show(done, total); };
  engine_ = std::make_unique<runtime::Engine>(session_, spec_, plan_, *source_, engine);
  report_load();
}

void Job::report_load() const {
  const runtime::LoadReport& report = engine_->load_report();
  uint64_t mine[2] = {report.useful_bytes, report.read_bytes};
  uint64_t sum[2] = {0, 0};
  parallel::check(MPI_Reduce(mine, sum, 2, MPI_UINT64_T, MPI_SUM, 0, session_.world()),
                  "MPI_Reduce");
  spdlog::info("layout {}: loaded {} useful, {} read, in {:.2f} s; {} threads a rank",
               planner::layout_text(plan_), human_bytes(sum[0]), human_bytes(sum[1]),
               report.seconds,
               threads_of_rank(options_.threads, static_cast<size_t>(session_.node_size())));
}

void Job::answer() {
  const Clock::time_point now = Clock::now();
  for (Completion& completion : completions_) completion.received = now;
  engine_->drive(*scheduler_, [&](size_t sequence, const runtime::TokenResults& results,
                                  size_t row) { return take_token(sequence, results, row); });
}

runtime::FinishReason Job::take_token(size_t sequence, const runtime::TokenResults& results,
                                      size_t row) {
  Completion& completion = completions_[sequence];
  const int32_t token = results.token[row];
  const Ask& ask = completion.prompt.ask;
  completion.last_token = Clock::now();
  if (completion.ids.empty()) completion.first_token = completion.last_token;
  completion.ids.push_back(token);
  if (options_.logprobs) {
    TokenLogprobs logprobs{results.logprob[row], {}};
    for (size_t i = row * results.shape.n_top; i < (row + 1) * results.shape.n_top; ++i)
      logprobs.top.emplace_back(results.top_token[i], results.top_logprob[i]);
    completion.logprobs.push_back(std::move(logprobs));
  }
  const auto logits = results.logits.begin() + static_cast<ptrdiff_t>(row * results.shape.n_logits);
  completion.logits.insert(completion.logits.end(), logits,
                           logits + static_cast<ptrdiff_t>(results.shape.n_logits));

  const bool is_eos = std::find(eos_ids_.begin(), eos_ids_.end(), token) != eos_ids_.end();
  const bool ends = is_eos && !ask.ignore_eos;
  const bool full = completion.ids.size() >= scheduler_->sequence(sequence).request.max_tokens;
  std::string piece;
  if (completion.text && !ends) piece = completion.text->push(token);
  const bool stopped = ends || (completion.text && completion.text->stopped());
  if (completion.text && (ends || (full && !stopped))) piece += completion.text->finish();
  completion.finish = stopped ? runtime::FinishReason::stop
                      : full  ? runtime::FinishReason::length
                              : runtime::FinishReason::none;
  if (options_.stream && !piece.empty()) {
    fwrite(piece.data(), 1, piece.size(), stdout);
    fflush(stdout);
  }
  return completion.finish;
}

void Job::print() {
  const std::string layout = planner::layout_text(plan_);
  size_t n_tokens = 0;
  for (size_t i = 0; i < completions_.size(); ++i) {
    const Completion& completion = completions_[i];
    n_tokens += completion.ids.size();
    if (options_.json) {
      fmt::print("{}\n", completion_json(completion, i, layout, options_.logprobs.has_value()));
      continue;
    }
    if (completions_.size() > 1) fmt::print("--- prompt {} ---\n", i);
    if (options_.stream)
      fmt::print("\n");
    else if (completion.text)
      fmt::print("{}\n", completion.text->text());
    else
      fmt::print("{}\n", fmt::join(completion.ids, " "));
  }
  if (std::fflush(stdout) != 0) throw run_error("cannot write to stdout");
  if (!options_.logits.empty()) write_logits();
  const Completion& first = completions_.front();
  spdlog::info(
      "{} prompts, {} tokens; first prompt: {} tokens in, {} out, first token after "
      "{:.1f} ms, then {:.2f} ms a token",
      completions_.size(), n_tokens, first.n_prompt, first.ids.size(), first.ttft_ms(),
      first.tpot_ms().value_or(0));
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
