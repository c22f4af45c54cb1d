// A trie of the phrases with a fallback from each node to the longest suffix that begins a phrase.
// A node where a phrase ends falls back nowhere: what began further left wins.
#include "runtime/tokenizer/phrase_finder.h"

#include <deque>
#include <utility>

#include "runtime/base/error.h"

namespace weft::runtime {
namespace {

uint64_t edge_of(int32_t node, unsigned char byte) {
  return uint64_t{static_cast<uint32_t>(node)} << 8 | byte;
}

}  // namespace

PhraseFinder::PhraseFinder(const std::vector<std::string>& phrases)
    : nodes_(1), first_(256, kNone) {
  for (size_t i = 0; i < phrases.size(); ++i) insert(phrases[i], i);
  link_fallbacks();
}

int32_t PhraseFinder::child(int32_t node, unsigned char byte) const {
  if (node == kRoot) return first_[byte];
  const auto found = edges_.find(edge_of(node, byte));
  return found == edges_.end() ? kNone : found->second;
}

void PhraseFinder::insert(const std::string& phrase, size_t index) {
  WEFT_EXPECT(!phrase.empty());
  int32_t node = kRoot;
  for (char c : phrase) {
    const auto byte = static_cast<unsigned char>(c);
    int32_t next = child(node, byte);
    if (next == kNone) {
      next = static_cast<int32_t>(nodes_.size());
      nodes_.emplace_back();
      edges_.emplace(edge_of(node, byte), next);
      if (node == kRoot) first_[byte] = next;
    }
    node = next;
  }
  if (nodes_[static_cast<size_t>(node)].phrase >= 0) return;
  nodes_[static_cast<size_t>(node)].phrase = static_cast<int32_t>(index);
  nodes_[static_cast<size_t>(node)].phrase_bytes = static_cast<uint32_t>(phrase.size());
}

// Breadth first, so that a node's fallback, which is shorter, is finished before it. A node at or
// below the end of a phrase gives up instead of falling back: what a shorter suffix could find
// starts further right than that phrase.
void PhraseFinder::link_fallbacks() {
  std::vector<std::vector<std::pair<unsigned char, int32_t>>> children(nodes_.size());
  for (const auto& [edge, node] : edges_) {
    children[edge >> 8].emplace_back(static_cast<unsigned char>(edge & 0xFF), node);
  }
  std::deque<int32_t> queue;
  for (int32_t node : first_) {
    if (node == kNone) continue;
    Node& at = nodes_[static_cast<size_t>(node)];
    at.fallback = at.phrase >= 0 ? kNone : kRoot;
    queue.push_back(node);
  }
  while (!queue.empty()) {
    const int32_t parent = queue.front();
    queue.pop_front();
    for (const auto& [byte, node] : children[static_cast<size_t>(parent)]) {
      queue.push_back(node);
      Node& at = nodes_[static_cast<size_t>(node)];
      if (at.phrase >= 0) continue;
      int32_t fallback = nodes_[static_cast<size_t>(parent)].fallback;
      while (fallback > kRoot && child(fallback, byte) == kNone) {
        fallback = nodes_[static_cast<size_t>(fallback)].fallback;
      }
      if (fallback == kNone) continue;
      const int32_t target = child(fallback, byte);
      at.fallback = target == kNone ? kRoot : target;
      // A phrase that ends here although it began later.
      at.phrase = nodes_[static_cast<size_t>(at.fallback)].phrase;
      at.phrase_bytes = nodes_[static_cast<size_t>(at.fallback)].phrase_bytes;
    }
  }
}

bool PhraseFinder::next(std::string_view text, size_t at, Match& match) const {
  int32_t node = kRoot;
  bool found = false;
  while (at < text.size()) {
    const auto byte = static_cast<unsigned char>(text[at]);
    const int32_t next = child(node, byte);
    if (next == kNone) {
      if (node == kRoot) {
        ++at;
        continue;
      }
      node = nodes_[static_cast<size_t>(node)].fallback;
      if (node == kNone) return found;
      continue;
    }
    node = next;
    ++at;
    const Node& here = nodes_[static_cast<size_t>(node)];
    if (here.phrase < 0) continue;
    match = {at - here.phrase_bytes, at, static_cast<size_t>(here.phrase)};
    found = true;
  }
  return found;
}

}  // namespace weft::runtime
