// A completion's times and its JSON line.
#include "launch/completion.h"

#include <nlohmann/json.hpp>

#include "planner/plan_fields.h"

namespace weft::launch {
namespace {

using nlohmann::ordered_json;

double milliseconds(Clock::duration duration) {
  return std::chrono::duration<double, std::milli>(duration).count();
}

ordered_json logprobs_json(const std::vector<TokenLogprobs>& logprobs) {
  ordered_json list = ordered_json::array();
  for (const TokenLogprobs& token : logprobs) {
    ordered_json top = ordered_json::array();
    for (const auto& [id, logprob] : token.top)
      top.push_back({{"token_id", id}, {"logprob", logprob}});
    list.push_back({{"logprob", token.logprob}, {"top", top}});
  }
  return list;
}

template <class T>
ordered_json or_null(const std::optional<T>& value) {
  return value ? ordered_json(*value) : ordered_json(nullptr);
}

ordered_json predicted_json(const std::optional<planner::Speed>& predicted) {
  if (!predicted) return nullptr;
  ordered_json object;
  for (const planner::SpeedField& field : planner::kSpeedFields)
    object[std::string(field.key)] = (*predicted).*field.field;
  return object;
}

ordered_json stages_json(const std::vector<StageReport>& stages) {
  ordered_json list = ordered_json::array();
  for (const StageReport& stage : stages) {
    ordered_json object = {{"layers", {stage.layers.begin, stage.layers.end}},
                           {"tp", stage.tp},
                           {"batches", stage.times.n_batches},
                           {"busy_ms", stage.times.busy_ms},
                           {"wait_ms", stage.times.wait_ms},
                           {"prefill_ms", or_null(stage.prefill_ms())},
                           {"decode_ms", or_null(stage.decode_ms())}};
    object["predicted"] = nullptr;
    if (stage.predicted)
      object["predicted"] = {{"prefill_ms", stage.predicted->prefill_ms},
                             {"decode_ms", stage.predicted->decode_ms}};
    list.push_back(std::move(object));
  }
  return list;
}

}  // namespace

TokenLogprobs logprobs_of(const runtime::TokenResults& results, size_t row) {
  TokenLogprobs logprobs{results.logprob[row], {}};
  for (size_t i = row * results.shape.n_top; i < (row + 1) * results.shape.n_top; ++i)
    logprobs.top.emplace_back(results.top_token[i], results.top_logprob[i]);
  return logprobs;
}

double Completion::ttft_ms() const { return milliseconds(first_token - received); }

std::optional<double> Completion::tpot_ms() const {
  if (ids.size() < 2) return std::nullopt;
  return milliseconds(last_token - first_token) / static_cast<double>(ids.size() - 1);
}

const char* finish_name(runtime::FinishReason reason) {
  switch (reason) {
    case runtime::FinishReason::stop:
      return "stop";
    case runtime::FinishReason::length:
      return "length";
    case runtime::FinishReason::none:
    case runtime::FinishReason::cancelled:
      break;
  }
  return "abort";
}

std::string completion_json(const Completion& completion, size_t index, const RunReport& run,
                            bool with_logprobs) {
  ordered_json line;
  line["index"] = index;
  line["text"] = completion.text ? ordered_json(completion.text->text()) : ordered_json(nullptr);
  line["token_ids"] = completion.ids;
  line["finish_reason"] = finish_name(completion.finish);
  line["prompt_tokens"] = completion.n_prompt;
  line["completion_tokens"] = completion.ids.size();
  line["ttft_ms"] =
      completion.ids.empty() ? ordered_json(nullptr) : ordered_json(completion.ttft_ms());
  const std::optional<double> tpot = completion.tpot_ms();
  line["tpot_ms"] = tpot ? ordered_json(*tpot) : ordered_json(nullptr);
  line["layout"] = run.layout;
  line["predicted"] = predicted_json(run.predicted);
  if (!run.stages.empty()) line["stages"] = stages_json(run.stages);
  if (with_logprobs) line["logprobs"] = logprobs_json(completion.logprobs);
  return line.dump(-1, ' ', false, ordered_json::error_handler_t::replace);
}

}  // namespace weft::launch
