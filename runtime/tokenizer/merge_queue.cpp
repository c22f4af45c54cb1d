// Two orders of the same queue: one heap for a short word; for a long one a map of ranks, each with
// a list that is filled left to right and a heap of the latecomers.
#include "runtime/tokenizer/merge_queue.h"

#include <algorithm>
#include <functional>

namespace weft::runtime {
namespace {

constexpr size_t kLongWord = 1024;  // symbols

template <class T>
void push_smallest_first(std::vector<T>& heap, T value) {
  heap.push_back(value);
  std::push_heap(heap.begin(), heap.end(), std::greater<>());
}

template <class T>
T pop_smallest(std::vector<T>& heap) {
  std::pop_heap(heap.begin(), heap.end(), std::greater<>());
  const T value = heap.back();
  heap.pop_back();
  return value;
}

}  // namespace

void MergeQueue::start(size_t n_symbols) {
  is_long_ = n_symbols >= kLongWord;
  heap_.clear();
  by_rank_.clear();
}

void MergeQueue::push(MergeCandidate candidate) {
  if (!is_long_) {
    push_smallest_first(heap_, uint64_t{candidate.rank} << 32 | candidate.place);
    return;
  }
  Places& places = by_rank_[candidate.rank];
  if (places.ascending.empty() || places.ascending.back() <= candidate.place) {
    places.ascending.push_back(candidate.place);
  } else {
    push_smallest_first(places.late, candidate.place);
  }
}

bool MergeQueue::pop(MergeCandidate& candidate) {
  if (!is_long_) {
    if (heap_.empty()) return false;
    const uint64_t order = pop_smallest(heap_);
    candidate = {static_cast<uint32_t>(order >> 32), static_cast<uint32_t>(order)};
    return true;
  }
  while (!by_rank_.empty()) {
    const auto first = by_rank_.begin();
    Places& places = first->second;
    const bool has_more = places.taken < places.ascending.size();
    if (!has_more && places.late.empty()) {
      by_rank_.erase(first);
      continue;
    }
    const bool takes_late =
        !places.late.empty() && (!has_more || places.late.front() < places.ascending[places.taken]);
    candidate.rank = first->first;
    candidate.place = takes_late ? pop_smallest(places.late) : places.ascending[places.taken++];
    return true;
  }
  return false;
}

}  // namespace weft::runtime
