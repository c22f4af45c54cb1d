// Candidates for a merge, lowest rank first and leftmost first within a rank.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

namespace weft::runtime {

struct MergeCandidate {
  uint32_t rank;
  uint32_t place;  // of the left symbol
};

// A short word's candidates are a binary heap. In a long one (a megabyte of spaces is one word) the
// heap would miss the cache at every level; there each rank has a list, and as candidates mostly
// come left to right, taking the next one costs no search.
class MergeQueue {
 public:
  void start(size_t n_symbols);  // empties the queue
  void push(MergeCandidate candidate);
  bool pop(MergeCandidate& candidate);  // false where there is none

 private:
  struct Places {
    std::vector<uint32_t> ascending;
    size_t taken = 0;
    std::vector<uint32_t> late;  // a heap: those that came after one further right
  };

  bool is_long_ = false;
  std::vector<uint64_t> heap_;  // rank << 32 | place
  std::map<uint32_t, Places> by_rank_;
};

}  // namespace weft::runtime
