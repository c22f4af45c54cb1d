// One store of the tokens, found by text through a hash and by id through a list of places.
#include "runtime/tokenizer/vocabulary.h"

namespace weft::runtime {

bool Vocabulary::add(std::string_view token, int32_t id) {
  const auto place = static_cast<size_t>(id);
  if (place < places_.size() && places_[place] >= 0) return false;
  if (ids_.contains(token)) return false;
  if (place >= places_.size()) places_.resize(place + 1, -1);
  places_[place] = static_cast<int32_t>(tokens_.size());
  ids_.emplace(tokens_.emplace_back(token), id);
  return true;
}

int32_t Vocabulary::id_of(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? -1 : found->second;
}

const std::string* Vocabulary::token_of(int32_t id) const {
  const auto place = static_cast<size_t>(id);
  if (id < 0 || place >= places_.size() || places_[place] < 0) return nullptr;
  return &tokens_[static_cast<size_t>(places_[place])];
}

}  // namespace weft::runtime
