// Opens what `--model` and `--weights` name.
#include "launch/model_source.h"

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/text.h"

namespace weft::launch {

WeightsChoice parse_weights(const std::string& text, const std::string& model) {
  constexpr std::string_view kSynthetic = "synthetic:";
  if (text == "checkpoint") {
    if (is_folder(model)) return {};
    throw input_error(
        "{} holds facts of a model and no weights: give a checkpoint's folder, or "
        "--weights synthetic:SEED",
        model);
  }
  if (!text.starts_with(kSynthetic))
    throw input_error("--weights {}: neither \"checkpoint\" nor \"synthetic:SEED\"", text);
  const std::string seed = text.substr(kSynthetic.size());
  return {true, parse_count(seed, "the seed of --weights synthetic", SIZE_MAX)};
}

std::unique_ptr<runtime::TensorSource> open_weights(const WeightsChoice& choice,
                                                    const std::string& model,
                                                    const planner::ModelSpec& spec) {
  if (choice.synthetic) return runtime::make_synthetic(spec, choice.seed);
  return runtime::open_checkpoint(model, spec);
}

std::unique_ptr<runtime::Tokenizer> open_tokenizer(const std::string& model,
                                                   const planner::ModelSpec& spec) {
  const std::string path = model + "/tokenizer.json";
  if (!is_file(path)) return nullptr;
  auto tokenizer = std::make_unique<runtime::Tokenizer>(runtime::Tokenizer::from_file(path));
  if (tokenizer->size() <= spec.vocab) return tokenizer;
  throw input_error("{} has ids up to {}, the model a vocabulary of {}", path,
                    tokenizer->size() - 1, spec.vocab);
}

runtime::GenerationDefaults generation_defaults(const std::string& model) {
  return is_folder(model) ? runtime::read_generation_defaults(model)
                          : runtime::GenerationDefaults();
}

}  // namespace weft::launch
