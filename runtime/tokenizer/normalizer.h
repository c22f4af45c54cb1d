// The "normalizer" of a tokenizer.json: text to text, before added tokens that ask for it are
// searched and before pre-tokenization.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/tokenizer/normal_form.h"
#include "runtime/tokenizer/pattern.h"
#include "runtime/tokenizer/tokenizer_json.h"

namespace weft::runtime {

class Normalizer {
 public:
  Normalizer() = default;  // changes nothing
  // Throws Error naming a kind that is not read.
  static Normalizer from_json(const JsonNode& node);

  // Sets `keeps_start` to false where it removed the text's first character.
  std::string apply(std::string_view text, bool& keeps_start) const;

  struct Prepend {
    std::string text;
  };
  struct Replace {
    Pattern pattern;
    std::string content;
  };
  struct Lowercase {};
  struct Strip {
    bool left, right;
  };
  using Step = std::variant<NormalForm, Prepend, Replace, Lowercase, Strip>;

 private:
  void add(const JsonNode& node);
  std::vector<Step> steps_;
};

// {"String": "a b"} or {"Regex": "\\s+"}.
Pattern pattern_from_json(const JsonNode& node);

}  // namespace weft::runtime
