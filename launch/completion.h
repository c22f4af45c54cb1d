// One prompt's answer as it is made and as it is printed.
#pragma once

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "launch/prompts.h"
#include "launch/stage_report.h"
#include "runtime/completion_text.h"
#include "runtime/sequence.h"
#include "runtime/token_results.h"

namespace weft::launch {

using Clock = std::chrono::steady_clock;

struct TokenLogprobs {
  float logprob = 0;
  std::vector<std::pair<int32_t, float>> top;  // most likely first
};

TokenLogprobs logprobs_of(const runtime::TokenResults& results, size_t row);

struct Completion {
  Prompt prompt;
  size_t n_prompt = 0;
  std::vector<int32_t> ids;
  std::vector<TokenLogprobs> logprobs;          // where they were asked for
  std::vector<float> logits;                    // [ids, vocab], where they were asked for
  std::optional<runtime::CompletionText> text;  // none without a tokenizer
  runtime::FinishReason finish = runtime::FinishReason::none;
  Clock::time_point received;
  Clock::time_point first_token;
  Clock::time_point last_token;

  double ttft_ms() const;
  // (end to end - TTFT) / (n - 1); none for one token.
  std::optional<double> tpot_ms() const;
};

const char* finish_name(runtime::FinishReason reason);

// One line: index, text, token_ids, finish_reason, prompt_tokens, completion_tokens, ttft_ms,
// tpot_ms, layout, what the plan predicted (null where it did not), at the run's end its stages
// with both, and logprobs where they were asked for.
std::string completion_json(const Completion& completion, size_t index, const RunReport& run,
                            bool with_logprobs);

}  // namespace weft::launch
