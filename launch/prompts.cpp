// Reads prompts from JSON lines and checks what they ask for.
#include "launch/prompts.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/json_text.h"

namespace weft::launch {
namespace {

using nlohmann::json;

constexpr size_t kMostTokens = size_t{1} << 31;
constexpr size_t kMostDepth = 4;       // a list within the object, and some to say what is wrong
constexpr float kMostSampling = 1e6f;  // of temperature and penalty

template <class T>
T number(const json& value, const std::string& key, double least, double most) {
  if (!value.is_number()) throw input_error("{} is {}, not a number", key, value.type_name());
  const double x = value.get<double>();
  if (!(x >= least && x <= most))
    throw input_error("{} {} is outside {} to {}", key, x, least, most);
  if (std::is_integral_v<T> && x != std::floor(x))
    throw input_error("{} {} is not a whole number", key, x);
  return value.get<T>();
}

std::string text_of(const json& value, const std::string& key) {
  if (!value.is_string()) throw input_error("{} is {}, not a text", key, value.type_name());
  return value.get<std::string>();
}

bool flag_of(const json& value, const std::string& key) {
  if (!value.is_boolean()) throw input_error("{} is {}, not true or false", key, value.type_name());
  return value.get<bool>();
}

std::vector<std::string> stops_of(const json& value) {
  if (value.is_string()) return {value.get<std::string>()};
  if (!value.is_array()) throw input_error("stop is neither a text nor a list of texts");
  std::vector<std::string> stops;
  for (const json& item : value) stops.push_back(text_of(item, "stop"));
  return stops;
}

std::vector<int32_t> ids_of(const json& value) {
  if (!value.is_array() || value.empty())
    throw input_error("prompt_token_ids is not a list of at least one id");
  std::vector<int32_t> ids;
  for (const json& item : value)
    ids.push_back(number<int32_t>(item, "prompt_token_ids", 0, 2147483647.0));
  return ids;
}

void take_key(Prompt& prompt, const std::string& key, const json& value) {
  Ask& ask = prompt.ask;
  if (key == "prompt")
    prompt.text = text_of(value, key);
  else if (key == "prompt_token_ids")
    prompt.ids = ids_of(value);
  else if (key == "max_tokens")
    ask.max_tokens = number<size_t>(value, key, 1, kMostTokens);
  else if (key == "temperature")
    ask.sampling.temperature = number<float>(value, key, 0, kMostSampling);
  else if (key == "top_k")
    ask.sampling.top_k = number<int32_t>(value, key, 0, 2147483647.0);
  else if (key == "top_p")
    ask.sampling.top_p = number<float>(value, key, 0, 1);
  else if (key == "repetition_penalty")
    ask.sampling.repetition_penalty = number<float>(value, key, 0, 1e6);
  else if (key == "seed")
    ask.sampling.seed = number<uint64_t>(value, key, 0, 9007199254740992.0);
  else if (key == "stop")
    ask.stops = stops_of(value);
  else if (key == "ignore_eos")
    ask.ignore_eos = flag_of(value, key);
  else {
    static constexpr std::string_view kKeys[] = {
        "prompt", "prompt_token_ids",   "max_tokens", "temperature", "top_k",
        "top_p",  "repetition_penalty", "seed",       "stop",        "ignore_eos"};
    throw input_error("unknown key \"{}\"{}", key, did_you_mean(key, kKeys));
  }
}

Prompt prompt_of(const json& object, const Ask& defaults) {
  if (!object.is_object()) throw input_error("not a JSON object");
  Prompt prompt;
  prompt.ask = defaults;
  for (const auto& [key, value] : object.items()) take_key(prompt, key, value);
  const bool has_text = object.contains("prompt");
  if (has_text == object.contains("prompt_token_ids"))
    throw input_error("{} of prompt and prompt_token_ids is given; exactly one is needed",
                      has_text ? "each" : "neither");
  const std::vector<std::string> wrong = problems(prompt.ask);
  if (!wrong.empty()) throw Error(wrong.front());
  return prompt;
}

Prompt parse_line(std::string_view line, const std::string& place, const Ask& defaults) {
  const json object = runtime::parse_json(line, place, {.depth = kMostDepth});
  try {
    return prompt_of(object, defaults);
  } catch (const Error& error) {
    throw input_error("{}: {}", place, error.what());
  }
}

}  // namespace

std::vector<Prompt> parse_prompts(std::string_view lines, const std::string& where,
                                  const Ask& defaults) {
  std::vector<Prompt> prompts;
  std::string wrong;
  size_t number_of_line = 0;
  for (const std::string& line : split(lines, '\n')) {
    ++number_of_line;
    if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
    try {
      prompts.push_back(parse_line(line, fmt::format("{}:{}", where, number_of_line), defaults));
    } catch (const Error& error) {
      wrong += fmt::format("\n  {}", error.what());
    }
  }
  if (!wrong.empty()) throw input_error("prompts that can't be read:{}", wrong);
  if (prompts.empty()) throw input_error("{} holds no prompt", where);
  return prompts;
}

std::vector<std::string> problems(const Ask& ask) {
  std::vector<std::string> found;
  const kernels::SamplingParams& s = ask.sampling;
  if (!(s.temperature >= 0 && s.temperature <= kMostSampling))
    found.push_back(fmt::format("temperature {} is outside 0 (greedy) to 1e6", s.temperature));
  if (s.top_k < 0) found.push_back(fmt::format("top-k {} is not 0 (all) or more", s.top_k));
  if (!(s.top_p > 0 && s.top_p <= 1))
    found.push_back(fmt::format("top-p {} is not above 0 and at most 1", s.top_p));
  if (!(s.repetition_penalty > 0 && s.repetition_penalty <= kMostSampling))
    found.push_back(fmt::format("repetition penalty {} is outside (0, 1e6]", s.repetition_penalty));
  if (ask.max_tokens == 0) found.push_back("max-tokens is 0: at least one token is made");
  for (const std::string& stop : ask.stops)
    if (stop.empty()) found.push_back("a stop string is empty");
  return found;
}

std::vector<int32_t> encode_prompt(const Prompt& prompt, const runtime::Tokenizer* tokenizer) {
  if (!prompt.ids.empty()) return prompt.ids;
  if (tokenizer != nullptr) return tokenizer->encode(prompt.text);
  std::vector<int32_t> ids;
  for (unsigned char byte : prompt.text) ids.push_back(byte);
  return ids;
}

}  // namespace weft::launch
