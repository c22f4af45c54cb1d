// tokenizer.json read as hostile input: every value knows its place, so that an error names it
// ("tok.json: model.merges[12]: …"); nesting and sizes are bounded before anything is built.
#pragma once

#include <cstddef>
#include <cstdint>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.h"

namespace weft::runtime {

inline constexpr size_t kMostJsonBytes = size_t{256} << 20;
// Ids are array indices on the model's side; the largest vocabularies have about 2^18.
inline constexpr int64_t kMostTokenId = (int64_t{1} << 24) - 1;

// Throws Error: not JSON, nested too deeply, too large.
nlohmann::json parse_tokenizer_json(std::string_view text, const std::string& where);

// A value and its place. The document must outlive it.
class JsonNode {
 public:
  JsonNode(const nlohmann::json& value, std::string file, std::string path = {})
      : value_(&value), file_(std::move(file)), path_(std::move(path)) {}

  const nlohmann::json& value() const { return *value_; }
  std::string where() const { return path_.empty() ? file_ : file_ + ": " + path_; }

  JsonNode at(const std::string& key) const;                   // Error where missing
  std::optional<JsonNode> find(const std::string& key) const;  // none where missing or null
  bool flag(const std::string& key, bool fallback) const;
  const std::string& text() const;
  int32_t token_id() const;             // 0..kMostTokenId
  std::vector<JsonNode> items() const;  // of an array; a few, each with its place
  void expect_object() const;

  template <class... Args>
  Error error(fmt::format_string<Args...> form, Args&&... args) const {
    return Error(where() + ": " + fmt::format(form, std::forward<Args>(args)...));
  }

 private:
  const nlohmann::json* value_;
  std::string file_;
  std::string path_;  // "model.merges[12]"; empty for the root
};

}  // namespace weft::runtime
