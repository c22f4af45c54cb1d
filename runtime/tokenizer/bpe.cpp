// Merges over a doubly linked list of symbols, and a table of pairs with open addressing.
#include "runtime/tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "runtime/tokenizer/utf8.h"

namespace weft::runtime {
namespace {

constexpr uint64_t kNoPair = ~uint64_t{0};  // ids are not negative
constexpr size_t kMostKnownWords = size_t{1} << 15;
constexpr size_t kMostKnownWordBytes = 64;
constexpr size_t kMostWordBytes = std::numeric_limits<int32_t>::max() / 2;

uint64_t pair_of(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

}  // namespace

MergeTable::MergeTable(size_t n_merges)
    : slots_(std::bit_ceil(2 * n_merges + 2), Slot{kNoPair, {0, 0}}) {}

// The slot that holds the pair, or the empty one where it belongs.
size_t MergeTable::slot_of(uint64_t pair) const {
  uint64_t mixed = (pair ^ pair >> 33) * 0xFF51AFD7ED558CCDu;
  mixed = (mixed ^ mixed >> 33) * 0xC4CEB9FE1A85EC53u;
  size_t slot = (mixed ^ mixed >> 33) & (slots_.size() - 1);
  while (slots_[slot].pair != pair && slots_[slot].pair != kNoPair) {
    slot = (slot + 1) & (slots_.size() - 1);
  }
  return slot;
}

void MergeTable::set(int32_t left, int32_t right, Merge merge) {
  const uint64_t pair = pair_of(left, right);
  slots_[slot_of(pair)] = {pair, merge};
}

const MergeTable::Merge* MergeTable::find(int32_t left, int32_t right) const {
  const Slot& slot = slots_[slot_of(pair_of(left, right))];
  return slot.pair == kNoPair ? nullptr : &slot.merge;
}

void Bpe::append_symbol(int32_t id) const {
  auto& symbols = scratch_.symbols;
  const auto place = static_cast<int32_t>(symbols.size());
  symbols.push_back({id, place - 1, place + 1});
}

// A character without a token of its own: its bytes where they all have tokens, else the unknown
// token, once for each or once for a run.
void Bpe::append_unknown(std::string_view character, bool& pending) const {
  if (byte_fallback_) {
    const auto id_of = [&](char c) { return bytes_[static_cast<unsigned char>(c)]; };
    const bool all =
        std::all_of(character.begin(), character.end(), [&](char c) { return id_of(c) >= 0; });
    if (all) {  // a pending unknown token comes after them: so does the package
      for (char c : character) append_symbol(id_of(c));
      return;
    }
  }
  if (unknown_.empty()) return;
  if (unknown_id_ < 0) {
    throw run_error("the tokenizer's unk_token \"{}\" is not in its vocabulary", unknown_);
  }
  if (pending && !fuses_unknown_) append_symbol(unknown_id_);
  pending = true;
}

void Bpe::load(std::string_view word) const {
  scratch_.symbols.clear();
  bool pending = false;  // an unknown token to be appended
  for (size_t at = 0; at < word.size();) {
    const Utf8Step step = utf8_step(word, at);
    const auto found = characters_.find(step.code);
    if (found == characters_.end()) {
      append_unknown(word.substr(at, step.bytes), pending);
    } else {
      if (pending) append_symbol(unknown_id_);
      pending = false;
      append_symbol(found->second);
    }
    at += step.bytes;
  }
  if (pending) append_symbol(unknown_id_);
  if (!scratch_.symbols.empty()) scratch_.symbols.back().next = -1;
}

void Bpe::push_candidate(int32_t place) const {
  const Symbol& symbol = scratch_.symbols[static_cast<size_t>(place)];
  if (symbol.next < 0) return;
  const Symbol& right = scratch_.symbols[static_cast<size_t>(symbol.next)];
  const MergeTable::Merge* merge = merges_.find(symbol.id, right.id);
  if (merge == nullptr) return;
  scratch_.queue.push({merge->rank, static_cast<uint32_t>(place)});
}

// False where the candidate is out of date: its symbols were merged with others since. As in the
// package, another pair that makes the same token counts as the same.
bool Bpe::merge_next(const MergeCandidate& candidate) const {
  auto& symbols = scratch_.symbols;
  Symbol& left = symbols[candidate.place];
  if (left.id < 0 || left.next < 0) return false;
  Symbol& right = symbols[static_cast<size_t>(left.next)];
  const MergeTable::Merge* merge = merges_.find(left.id, right.id);
  if (merge == nullptr || merge->id != merged_ids_[candidate.rank]) return false;
  left.id = merge->id;
  left.next = right.next;
  right.id = -1;
  if (left.next >= 0) {
    symbols[static_cast<size_t>(left.next)].previous = static_cast<int32_t>(candidate.place);
  }
  return true;
}

void Bpe::merge() const {
  scratch_.queue.start(scratch_.symbols.size());
  for (size_t i = 0; i < scratch_.symbols.size(); ++i) push_candidate(static_cast<int32_t>(i));
  MergeCandidate candidate{};
  while (scratch_.queue.pop(candidate)) {
    if (!merge_next(candidate)) continue;
    const int32_t previous = scratch_.symbols[candidate.place].previous;
    if (previous >= 0) push_candidate(previous);
    push_candidate(static_cast<int32_t>(candidate.place));
  }
}

void Bpe::encode(std::string_view word, std::vector<int32_t>& ids) const {
  if (word.size() > kMostWordBytes) throw run_error("a word of {} bytes", word.size());
  const int32_t whole = ignores_merges_ ? vocabulary_.id_of(word) : -1;
  if (whole >= 0) {
    ids.push_back(whole);
    return;
  }
  auto& known = scratch_.known_words;
  const bool remembers = word.size() <= kMostKnownWordBytes;
  std::string key;
  if (remembers) {
    key = word;
    const auto found = known.find(key);
    if (found != known.end()) {
      ids.insert(ids.end(), found->second.begin(), found->second.end());
      return;
    }
  }
  load(word);
  merge();
  const size_t before = ids.size();
  for (const Symbol& symbol : scratch_.symbols) {
    if (symbol.id >= 0) ids.push_back(symbol.id);
  }
  if (!remembers) return;
  if (known.size() >= kMostKnownWords) known.clear();
  known.emplace(std::move(key),
                std::vector<int32_t>(ids.begin() + static_cast<ptrdiff_t>(before), ids.end()));
}

}  // namespace weft::runtime
