// Reading the list, searching a text for its tokens, and cutting the text there.
#include "runtime/tokenizer/added_tokens.h"

#include <utf8proc.h>

#include <algorithm>

#include "runtime/tokenizer/unicode_stand_ins.h"
#include "runtime/tokenizer/utf8.h"

namespace weft::runtime {
namespace {

// A character of a word, as \w has it: letters, marks, digits, connectors, joiners. Unicode's
// Alphabetic also has the circled and squared letters, which are symbols by category.
bool is_word_character(char32_t code) {
  const bool enclosed =
      (code >= 0x24B6 && code <= 0x24E9) || (code >= 0x1F130 && code <= 0x1F149) ||
      (code >= 0x1F150 && code <= 0x1F169) || (code >= 0x1F170 && code <= 0x1F189);
  if (enclosed || code == 0x200C || code == 0x200D) return true;
  switch (utf8proc_category(static_cast<utf8proc_int32_t>(stand_in_of(code)))) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      return false;
  }
}

bool is_inside_word(std::string_view text, size_t begin, size_t end) {
  const bool before =
      begin > 0 && is_word_character(utf8_step(text, previous_character(text, begin)).code);
  return before || (end < text.size() && is_word_character(utf8_step(text, end).code));
}

}  // namespace

AddedTokens::Token AddedTokens::token_from_json(const JsonNode& node) {
  return {node.at("content").text(),  node.at("id").token_id(),   node.flag("single_word", false),
          node.flag("lstrip", false), node.flag("rstrip", false), node.flag("normalized", true),
          node.flag("special", false)};
}

// The id that the package gives; an error where the file says another.
int32_t AddedTokens::number(const JsonNode& node, const Token& token, const Vocabulary& model) {
  if (vocabulary_.id_of(token.content) >= 0) {
    throw node.error("token \"{}\" is listed twice", token.content);
  }
  const int32_t own = model.id_of(token.content);
  const auto n_model = static_cast<int32_t>(model.entries());
  const int32_t next = std::max(n_model, static_cast<int32_t>(vocabulary_.size()));
  const int32_t expected = own >= 0 ? own : next;
  if (token.id != expected) {
    throw node.error(
        "token \"{}\" has id {}, but {}; a model's rows would be read at the wrong ids",
        token.content, token.id,
        own >= 0 ? fmt::format("model.vocab gives it {}", own)
                 : fmt::format("the next free id is {}", expected));
  }
  const std::string* holder = model.token_of(token.id);
  if (holder != nullptr && *holder != token.content) {
    throw node.error("token \"{}\" has id {}, which is \"{}\" in model.vocab", token.content,
                     token.id, *holder);
  }
  if (!vocabulary_.add(token.content, token.id)) {
    throw node.error("token \"{}\": id {} is taken by \"{}\"", token.content, token.id,
                     *vocabulary_.token_of(token.id));
  }
  return token.id;
}

AddedTokens AddedTokens::from_json(const std::optional<JsonNode>& list, const Vocabulary& model,
                                   const Normalizer& normalizer) {
  AddedTokens added;
  if (!list) return added;
  std::vector<Token> tokens;
  for (const JsonNode& node : list->items()) {
    Token token = token_from_json(node);
    if (token.content.empty()) throw node.error("a token without content");
    token.id = added.number(node, token, model);
    if (token.special) added.special_.insert(token.content);
    tokens.push_back(std::move(token));
  }
  // Of two that normalize to the same text the special one is found.
  std::stable_partition(tokens.begin(), tokens.end(), [](const Token& t) { return t.special; });
  std::vector<std::string> raw_phrases, normalized_phrases;
  for (Token& token : tokens) {
    if (!token.normalized) {
      raw_phrases.push_back(token.content);
      added.raw_.tokens.push_back(std::move(token));
      continue;
    }
    bool keeps_start = true;
    normalized_phrases.push_back(normalizer.apply(token.content, keeps_start));
    if (normalized_phrases.back().empty()) {
      throw list->error("token \"{}\" is nothing once normalized", token.content);
    }
    added.normalized_.tokens.push_back(std::move(token));
  }
  added.raw_.finder = PhraseFinder(raw_phrases);
  added.normalized_.finder = PhraseFinder(normalized_phrases);
  return added;
}

void AddedTokens::cut(std::string_view text, const Search& search, std::vector<Piece>& pieces) {
  size_t done = 0, space_end = 0;
  PhraseFinder::Match match{};
  for (size_t at = 0; search.finder.next(text, at, match); at = match.end) {
    const Token& token = search.tokens[match.phrase];
    size_t begin = match.begin, end = match.end;
    if (token.single_word && is_inside_word(text, begin, end)) continue;
    if (token.strips_left) begin = skip_white_space_back(text, begin, std::min(done, begin));
    if (token.strips_right) {
      // White space that was skipped before need not be walked again.
      end = end < space_end ? space_end : skip_white_space(text, end);
      space_end = end;
    }
    if (done < begin) pieces.push_back({done, begin, -1, done == 0});
    pieces.push_back({begin, end, token.id, false});
    done = end;
  }
  if (done < text.size()) pieces.push_back({done, text.size(), -1, done == 0});
}

PiecedText AddedTokens::extract(std::string_view text, const Normalizer& normalizer) const {
  std::vector<Piece> raw;
  cut(text, raw_, raw);
  PiecedText result;
  std::vector<Piece> parts;
  for (const Piece& piece : raw) {
    if (piece.token >= 0) {
      result.pieces.push_back({result.text.size(), result.text.size(), piece.token, false});
      continue;
    }
    bool keeps_start = piece.at_start;
    const std::string normalized =
        normalizer.apply(text.substr(piece.begin, piece.end - piece.begin), keeps_start);
    const size_t base = result.text.size();
    result.text += normalized;
    parts.clear();
    cut(normalized, normalized_, parts);
    for (const Piece& part : parts) {
      result.pieces.push_back(
          {base + part.begin, base + part.end, part.token, part.at_start && keeps_start});
    }
  }
  return result;
}

}  // namespace weft::runtime
