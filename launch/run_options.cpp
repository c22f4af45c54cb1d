// The flags of `weft run`, and what follows from them alone.
#include "launch/run_options.h"

#include <fmt/ranges.h>
#include <sched.h>
#include <CLI/CLI.hpp>

#include "launch/flag_words.h"
#include "launch/preflight_check.h"
#include "parallel/gather.h"
#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/text.h"

namespace weft::launch {
namespace {

constexpr size_t kMostPromptBytes = size_t{256} << 20;

void add_prompt_options(CLI::App& command, RunOptions& o) {
  auto* group = command.add_option_group("prompts", "exactly one of them");
  group->add_option("--prompt", o.prompt, "The prompt");
  group->add_option("--prompt-file", o.prompt_file, "A file whose whole text is the prompt");
  group->add_option("--prompts", o.prompts,
                    "JSON lines, one object a prompt: prompt or prompt_token_ids, and any of "
                    "max_tokens, temperature, top_k, top_p, repetition_penalty, seed, stop, "
                    "ignore_eos");
  group->require_option(1);
}

void add_sampling_options(CLI::App& command, RunOptions& o) {
  command.add_option("--temperature", o.temperature,
                     "0 takes the most likely token (default: the model's own advice, else 0)");
  command.add_option("--top-k", o.top_k, "Keep the k most likely tokens; 0 keeps all");
  command.add_option("--top-p", o.top_p, "Keep the most likely tokens that reach this probability");
  command.add_option("--repetition-penalty", o.repetition_penalty,
                     "Divides positive and multiplies negative logits of tokens seen before");
  command
      .add_option_function<std::string>(
          "--seed",
          [&o](const std::string& text) { o.seed = parse_count(text, "--seed", SIZE_MAX); },
          "The same seed gives the same text at any layout (default 0)")
      ->type_name("N");
  command.add_option("--stop", o.stops, "End before this text; may be given several times")
      ->allow_extra_args(false);
  command
      .add_option_function<std::string>(
          "--max-tokens",
          [&o](const std::string& text) {
            o.max_tokens = parse_count(text, "--max-tokens", size_t{1} << 31);
          },
          "Tokens to make at most (default 128)")
      ->type_name("N");
  command.add_flag("--ignore-eos", o.ignore_eos, "Go on past the end-of-sequence token");
}

void add_output_options(CLI::App& command, RunOptions& o) {
  command.add_option("--logits", o.logits,
                     "Write the logits that chose each token to this safetensors file");
  auto* json = command.add_flag("--json", o.json, "One JSON object a prompt, one a line");
  command
      .add_option("--logprobs", o.logprobs,
                  "With --json: log-probability of each token and of the N most likely")
      ->check(CLI::Range(0, 100))
      ->needs(json);
  command.add_flag("--stream", o.stream, "Print the text of one prompt as it is made")
      ->excludes(json);
  command.add_option("--dump-plan", o.dump_plan, "Write the plan that is run, with all its limits");
  command.add_flag("--verbose", o.verbose, "Log more, on every rank");
}

void add_failure_options(CLI::App& command, RunOptions& o) {
  command
      .add_option("--step-limit-s", o.step_limit_s,
                  "A step that takes longer ends the job; 0 sets no limit (default: from the plan, "
                  "10 or more)")
      ->check(CLI::Range(0.0, 1e6));
  command
      .add_option("--drain-s", o.drain_s,
                  "After SIGTERM, SIGINT or SIGUSR1: seconds within which the job ends in order")
      ->check(CLI::Range(1.0, 1e6))
      ->capture_default_str();
  command
      .add_option_function<std::string>(
          "--preflight",
          [&o](const std::string& text) {
            o.preflight = static_cast<PreflightLevel>(choose("--preflight", text, kPreflightNames));
          },
          "Proof before the run: quick (default), or full: messages over every group and edge too")
      ->type_name("quick|full");
  add_preflight_limit(command, o.preflight_limit_s);
  command.add_flag("!--no-guardian", o.guardian,
                   "No process beside each rank that ends the job when one fails: for debuggers");
}

}  // namespace

void add_run_options(CLI::App& command, RunOptions& o) {
  command.add_option("--model", o.model, "A Hugging Face folder, or a YAML file of model facts")
      ->required();
  command.add_option("--weights", o.weights, "checkpoint, or synthetic:SEED")
      ->capture_default_str();
  add_plan_options(command, o.plan);
  add_plan_file_option(command, o.plan);
  add_prompt_options(command, o);
  add_sampling_options(command, o);
  add_output_options(command, o);
  add_failure_options(command, o);
  add_device_options(command, o.device);
  command.add_option("--threads", o.threads, "Threads of each rank (default: its share of cores)")
      ->check(CLI::Range(1, 1024));
  command.add_flag("!--no-mmap", o.mmap,
                   "On CPU ranks, copy the checkpoint into memory of each rank's own instead of "
                   "mapping its files, which ranks and jobs of a host share");
  command.add_flag("!--no-bind", o.bind,
                   "Leave ranks on the CPUs where the launcher put them (default: each gets whole "
                   "cores of its own, where there are enough)");
}

Ask default_ask(const RunOptions& options, const runtime::GenerationDefaults& defaults) {
  Ask ask;
  ask.sampling = defaults.sampling;
  ask.sampling.seed = options.seed;
  if (options.temperature) ask.sampling.temperature = *options.temperature;
  if (options.top_k) ask.sampling.top_k = *options.top_k;
  if (options.top_p) ask.sampling.top_p = *options.top_p;
  if (options.repetition_penalty) ask.sampling.repetition_penalty = *options.repetition_penalty;
  ask.max_tokens = options.max_tokens;
  ask.stops = options.stops;
  ask.ignore_eos = options.ignore_eos;
  const std::vector<std::string> wrong = problems(ask);
  if (!wrong.empty()) throw input_error("{}", fmt::join(wrong, "; "));
  return ask;
}

std::vector<Prompt> read_prompts(const RunOptions& options, const Ask& defaults) {
  if (!options.prompts.empty())
    return parse_prompts(read_text(options.prompts, kMostPromptBytes), options.prompts, defaults);
  Prompt prompt;
  prompt.ask = defaults;
  prompt.text = options.prompt ? *options.prompt : read_text(options.prompt_file, kMostPromptBytes);
  return {prompt};
}

size_t threads_of_rank(const parallel::MpiSession& session, size_t asked) {
  if (asked > 0) return asked;
  struct Place {
    int node;
    cpu_set_t cores;
  };
  Place mine{session.node(), {}};
  if (sched_getaffinity(0, sizeof(mine.cores), &mine.cores) != 0) return 1;
  size_t n_sharing = 0;
  for (Place& other : parallel::gather(session, mine)) {
    CPU_AND(&other.cores, &other.cores, &mine.cores);
    if (other.node == mine.node && CPU_COUNT(&other.cores) > 0) ++n_sharing;
  }
  const auto n_cores = static_cast<size_t>(CPU_COUNT(&mine.cores));
  return std::max<size_t>(1, n_cores / std::max<size_t>(1, n_sharing));
}

}  // namespace weft::launch
