// The "decoder" of a tokenizer.json: tokens to text. Every step is a filter over a stream of
// pieces, so decoding all ids at once and one by one run the same code.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "runtime/tokenizer.h"
#include "runtime/tokenizer/pattern.h"
#include "runtime/tokenizer/tokenizer_json.h"

namespace weft::runtime {

class TokenDecoder {
 public:
  // No node: tokens are joined with spaces. Throws Error naming a kind that is not read.
  static TokenDecoder from_json(const std::optional<JsonNode>& node);

  std::vector<DecodeState> start() const { return std::vector<DecodeState>(steps_.size()); }
  // Appends to `text` what the next token settles.
  void push(std::vector<DecodeState>& states, std::string_view token, std::string& text) const;
  // Appends what was held back.
  void finish(std::vector<DecodeState>& states, std::string& text) const;

  struct Join {};   // a space before every token but the first
  struct Replace {  // in every token
    Pattern pattern;
    std::string content;
  };
  struct ByteFallback {};  // runs of <0xE4> tokens as UTF-8; a run that is none, as U+FFFD each
  struct Fuse {};          // all tokens become one
  struct Strip {           // up to `start` and `stop` of a character at each token's ends
    std::string character;
    size_t start, stop;
  };
  struct ByteUnmark {};  // ByteLevel: characters as bytes; all tokens become one
  struct SpaceUnmark {   // Metaspace
    std::string mark;
    bool drops_first;  // the first token's marks stand for no space
  };
  using Step = std::variant<Join, Replace, ByteFallback, Fuse, Strip, ByteUnmark, SpaceUnmark>;

 private:
  friend struct DecodeRun;
  void add(const JsonNode& node);
  std::vector<Step> steps_;
  bool fuses_ = false;  // a step so far makes one token of all
};

}  // namespace weft::runtime
