// The prompts of a run: given on the command line, or many in a JSON-lines file.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "kernels/sampling.h"
#include "runtime/sequence.h"
#include "runtime/tokenizer.h"

namespace weft::launch {

// What a prompt asks for; the command line's values unless its line in the file says otherwise.
struct Ask {
  kernels::SamplingParams sampling;
  size_t max_tokens = 128;
  std::vector<std::string> stops;
  bool ignore_eos = false;
};

struct Prompt {
  std::string text;
  std::vector<int32_t> ids;  // instead of text, where the file gives prompt_token_ids
  Ask ask;
};

// One JSON object a line: `prompt` or `prompt_token_ids`, and any of max_tokens, temperature,
// top_k, top_p, repetition_penalty, seed, stop (text or list), ignore_eos. Throws Error listing
// what is wrong with file and line.
std::vector<Prompt> parse_prompts(std::string_view lines, const std::string& where,
                                  const Ask& defaults);

// Every rule the values break, as one sentence each.
std::vector<std::string> problems(const Ask& ask);

// Token ids of a prompt. Without a tokenizer the bytes of the text stand for themselves.
std::vector<int32_t> encode_prompt(const Prompt& prompt, const runtime::Tokenizer* tokenizer);

}  // namespace weft::launch
