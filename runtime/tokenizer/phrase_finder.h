// Finds many phrases in a text at once (Aho and Corasick 1975), leftmost first and the longest of
// those that start there, in one pass over the text.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace weft::runtime {

class PhraseFinder {
 public:
  struct Match {
    size_t begin, end;
    size_t phrase;  // index in the list given
  };

  // Phrases must not be empty; of equal ones the first is found.
  explicit PhraseFinder(const std::vector<std::string>& phrases);

  // The first match at or after `at`; false where there is none.
  bool next(std::string_view text, size_t at, Match& match) const;

 private:
  static constexpr int32_t kRoot = 0, kNone = -1;
  struct Node {
    int32_t fallback = kNone;  // the longest suffix that is a prefix; kNone: give up here
    int32_t phrase = -1;       // the phrase that ends here
    uint32_t phrase_bytes = 0;
  };

  int32_t child(int32_t node, unsigned char byte) const;
  void insert(const std::string& phrase, size_t index);
  void link_fallbacks();

  std::vector<Node> nodes_;
  std::unordered_map<uint64_t, int32_t> edges_;  // node << 8 | byte -> node
  std::vector<int32_t> first_;                   // [256] the root's children
};

}  // namespace weft::runtime
