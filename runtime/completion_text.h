// The text of one completion as it grows: pieces that end at whole characters, cut at the first
// stop string.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "runtime/tokenizer.h"

namespace weft::runtime {

class CompletionText {
 public:
  // Stop strings are not empty. The tokenizer outlives this.
  CompletionText(const Tokenizer& tokenizer, std::vector<std::string> stops);

  // Text that became certain with this token: nothing that could still turn into a stop string is
  // given out. stopped() is true once a stop string was met; the text ends before it.
  std::string push(int32_t id);
  // What was held back, at the end of a sequence that no stop string ended.
  std::string finish();

  bool stopped() const { return stopped_; }
  const std::string& text() const { return text_; }  // all that was given out

 private:
  std::string release(bool at_end);

  StreamDecoder decoder_;
  std::vector<std::string> stops_;
  std::string held_;  // decoded, not given out
  std::string text_;
  bool stopped_ = false;
};

}  // namespace weft::runtime
