// Text to token ids and back, from a Hugging Face tokenizer.json; equal to the `tokenizers`
// package.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace weft::runtime {

class Tokenizer {
 public:
  // Byte-level BPE and SentencePiece-style BPE with byte fallback. Throws Error naming the file and
  // what is not understood ("tokenizer is WordPiece; weft reads BPE").
  static Tokenizer from_file(const std::string& path);
  static Tokenizer from_json(std::string_view json, const std::string& where);
  ~Tokenizer();
  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;

  // Any bytes: what is not UTF-8 is replaced by U+FFFD first, as Python's errors="replace" does.
  std::vector<int32_t> encode(std::string_view text, bool add_special_tokens = true) const;
  std::string decode(const std::vector<int32_t>& ids, bool skip_special_tokens = true) const;

  size_t size() const;  // largest id + 1
  bool is_special(int32_t id) const;
  // -1 where there is no such token.
  int32_t id_of(std::string_view token) const;

  struct State;

 private:
  explicit Tokenizer(std::unique_ptr<State> state);
  friend class StreamDecoder;
  std::unique_ptr<State> state_;
};

// What a decoding step keeps between tokens.
struct DecodeState {
  std::string held;     // bytes whose text a later token may change
  size_t tokens = 0;    // seen so far
  size_t stripped = 0;  // characters removed from this token's start
};

// Decodes token by token: what it returns, joined, is decode() of all the ids, and each piece ends
// at the end of a UTF-8 character. Linear in the number of tokens. The tokenizer must outlive it
// (moving the tokenizer is fine). With byte fallback a run of byte tokens is held until it ends:
// one bad byte makes all of it U+FFFD.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens = true);
  std::string push(int32_t id);
  std::string finish();  // what is held back at the end; incomplete characters become U+FFFD

 private:
  const Tokenizer::State* tokenizer_;
  bool skip_special_tokens_;
  std::vector<DecodeState> states_;  // one a decoding step
};

}  // namespace weft::runtime
