// Tokens and their ids, both ways.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace weft::runtime {

class Vocabulary {
 public:
  // False, and nothing added, where the id (0..kMostTokenId) or the token is taken.
  bool add(std::string_view token, int32_t id);

  int32_t id_of(std::string_view token) const;    // -1 where there is none
  const std::string* token_of(int32_t id) const;  // null where there is none
  size_t entries() const { return tokens_.size(); }
  size_t size() const { return places_.size(); }  // largest id + 1

 private:
  std::deque<std::string> tokens_;  // a deque: ids_ keeps views of them
  std::unordered_map<std::string_view, int32_t> ids_;
  std::vector<int32_t> places_;  // by id: index in tokens_, or -1
};

}  // namespace weft::runtime
