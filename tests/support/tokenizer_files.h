// The tokenizers and references under tests/data/tokenizers, which
// scripts/make_tokenizer_references.py made with the `tokenizers` package.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/file.h"

namespace weft::test {

inline std::string tokenizer_path(const std::string& name) {
  return std::string(WEFT_SOURCE_DIR "/tests/data/tokenizers/") + name;
}

inline nlohmann::json tokenizer_data(const std::string& name) {
  return nlohmann::json::parse(read_text(tokenizer_path(name), size_t{16} << 20));
}

inline std::string bytes_of_hex(std::string_view hex) {
  std::string bytes;
  for (size_t i = 0; i + 1 < hex.size(); i += 2) {
    bytes += static_cast<char>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  }
  return bytes;
}

inline std::vector<std::string> tokenizer_corpus() {
  std::vector<std::string> corpus;
  for (const auto& hex : tokenizer_data("corpus.json")) {
    corpus.push_back(bytes_of_hex(hex.get<std::string>()));
  }
  return corpus;
}

}  // namespace weft::test
