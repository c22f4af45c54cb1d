// Byte-pair encoding: the symbols of a word are merged pair by pair, lowest rank first, leftmost
// first, in O(n log n) for a word of n symbols. Source: Sennrich et al. 2016, "Neural Machine
// Translation of Rare Words with Subword Units".
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/tokenizer/merge_queue.h"
#include "runtime/tokenizer/tokenizer_json.h"
#include "runtime/tokenizer/vocabulary.h"

namespace weft::runtime {

// (left id, right id) -> what they merge into. Open addressing: it is asked for every neighbouring
// pair of every text.
class MergeTable {
 public:
  struct Merge {
    uint32_t rank;
    int32_t id;
  };
  explicit MergeTable(size_t n_merges);
  void set(int32_t left, int32_t right, Merge merge);  // a later merge of the same pair wins
  const Merge* find(int32_t left, int32_t right) const;

 private:
  struct Slot {
    uint64_t pair;
    Merge merge;
  };
  size_t slot_of(uint64_t pair) const;
  std::vector<Slot> slots_;  // a power of two, at most half full
};

class Bpe {
 public:
  // `model` of a tokenizer.json. Throws Error naming what is not read.
  static Bpe from_json(const JsonNode& model);

  // Appends the ids of one word (no pre-tokenization). Uses a cache: one thread at a time.
  void encode(std::string_view word, std::vector<int32_t>& ids) const;

  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  struct Symbol {
    int32_t id;  // -1: merged into the one on its left
    int32_t previous, next;
  };
  struct Scratch {
    std::vector<Symbol> symbols;
    MergeQueue queue;
    std::unordered_map<std::string, std::vector<int32_t>> known_words;
  };

  Bpe() : merges_(0) {}
  void read_vocabulary(const JsonNode& model);
  void read_merges(const JsonNode& model);
  void load(std::string_view word) const;
  void append_unknown(std::string_view character, bool& pending) const;
  void append_symbol(int32_t id) const;
  void push_candidate(int32_t place) const;
  void merge() const;
  bool merge_next(const MergeCandidate& candidate) const;

  Vocabulary vocabulary_;
  MergeTable merges_;
  std::vector<int32_t> merged_ids_;                   // by rank
  std::unordered_map<char32_t, int32_t> characters_;  // tokens of one character
  std::vector<int32_t> bytes_;                        // [256] ids of <0x00>…<0xFF>, -1 if none
  std::string unknown_;                               // "": characters without a token vanish
  int32_t unknown_id_ = -1;
  bool fuses_unknown_ = false;
  bool byte_fallback_ = false;
  bool ignores_merges_ = false;  // a word that is a token is that token
  mutable Scratch scratch_;
};

}  // namespace weft::runtime
