// The "pre_tokenizer" of a tokenizer.json: cuts text into the words that BPE merges within, and
// marks spaces or bytes the way the vocabulary writes them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "runtime/tokenizer/pattern.h"
#include "runtime/tokenizer/tokenizer_json.h"

namespace weft::runtime {

struct Piece {
  size_t begin, end;      // bytes of PiecedText::text
  int32_t token = -1;     // an added token, not to be cut; -1: text
  bool at_start = false;  // begins where the whole input begins
};

// All pieces lie in one buffer, in order, so that a step costs time linear in the text.
struct PiecedText {
  std::string text;
  std::vector<Piece> pieces;
};

class Pretokenizer {
 public:
  Pretokenizer() = default;  // leaves the pieces as they are
  // Throws Error naming a kind that is not read.
  static Pretokenizer from_json(const JsonNode& node);

  void apply(PiecedText& text) const;

  enum class Behavior { kIsolated, kRemoved, kMergedWithPrevious, kMergedWithNext, kContiguous };
  struct Split {
    Pattern pattern;
    Behavior behavior;
    bool invert;  // what the pattern doesn't match separates
  };
  struct PrefixSpace {};  // GPT-2: a word at the start is written as one inside a sentence
  struct ByteMark {};     // bytes as printable characters
  enum class Prepend { kAlways, kFirst, kNever };
  struct SpaceMark {  // SentencePiece: spaces as U+2581
    std::string mark;
    Prepend prepend;
  };
  using Step = std::variant<Split, PrefixSpace, ByteMark, SpaceMark>;

  // Of a Metaspace, which is a pre-tokenizer and a decoder.
  static Prepend prepend_from_json(const JsonNode& node);

 private:
  void add(const JsonNode& node);
  std::vector<Step> steps_;
};

// GPT-2's printable character for a byte, and back (-1 where there is none): bytes that print stand
// for themselves, the others follow U+0100 in order.
char32_t character_of_byte(unsigned char byte);
int byte_of_character(char32_t code);

}  // namespace weft::runtime
