// Tokens that are found in the text before BPE sees it: control tokens, and words added after
// training. Each is searched in the raw text or, where it asks for it, in the normalized one.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "runtime/tokenizer/normalizer.h"
#include "runtime/tokenizer/phrase_finder.h"
#include "runtime/tokenizer/pretokenizer.h"
#include "runtime/tokenizer/tokenizer_json.h"
#include "runtime/tokenizer/vocabulary.h"

namespace weft::runtime {

class AddedTokens {
 public:
  // `added_tokens` of a tokenizer.json. Throws Error where an id is taken, or is not the one that
  // the `tokenizers` package gives: the model's own, or the next after all before.
  static AddedTokens from_json(const std::optional<JsonNode>& list, const Vocabulary& model,
                               const Normalizer& normalizer);

  // Text to pieces: added tokens, and normalized text between them.
  PiecedText extract(std::string_view text, const Normalizer& normalizer) const;

  const Vocabulary& vocabulary() const { return vocabulary_; }
  bool is_special(std::string_view token) const { return special_.contains(std::string(token)); }

 private:
  struct Token {
    std::string content;
    int32_t id;
    bool single_word, strips_left, strips_right, normalized, special;
  };
  struct Search {
    std::vector<Token> tokens;
    PhraseFinder finder{{}};
  };

  static Token token_from_json(const JsonNode& node);
  int32_t number(const JsonNode& node, const Token& token, const Vocabulary& model);
  static void cut(std::string_view text, const Search& search, std::vector<Piece>& pieces);

  Vocabulary vocabulary_;
  std::unordered_set<std::string> special_;
  Search raw_, normalized_;
};

}  // namespace weft::runtime
