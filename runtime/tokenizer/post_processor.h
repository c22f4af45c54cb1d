// The "post_processor" of a tokenizer.json: special tokens around a text, such as the one that
// begins a sequence.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/tokenizer/tokenizer_json.h"

namespace weft::runtime {

class PostProcessor {
 public:
  static constexpr int32_t kText = -1;

  PostProcessor() = default;  // adds nothing
  // Throws Error naming a kind that is not read.
  static PostProcessor from_json(const JsonNode& node);

  std::vector<int32_t> apply(std::vector<int32_t> ids) const;

  // Ids and kText, in order.
  const std::vector<int32_t>& form() const { return form_; }

 private:
  void add(const JsonNode& node);
  void wrap(const std::vector<int32_t>& form);
  std::vector<int32_t> form_ = {kText};
};

}  // namespace weft::runtime
