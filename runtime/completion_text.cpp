// Streaming text with stop strings.
#include "runtime/completion_text.h"

#include <algorithm>

namespace weft::runtime {
namespace {

// Bytes at the end of text that begin the stop string.
size_t begun_stop(const std::string& text, const std::string& stop) {
  for (size_t n = std::min(text.size(), stop.size() - 1); n > 0; --n)
    if (text.compare(text.size() - n, n, stop, 0, n) == 0) return n;
  return 0;
}

}  // namespace

CompletionText::CompletionText(const Tokenizer& tokenizer, std::vector<std::string> stops)
    : decoder_(tokenizer), stops_(std::move(stops)) {}

std::string CompletionText::push(int32_t id) {
  held_ += decoder_.push(id);
  return release(false);
}

std::string CompletionText::finish() {
  held_ += decoder_.finish();
  return release(true);
}

// The earliest stop string ends the text; failing one, what may yet become a stop is held back.
std::string CompletionText::release(bool at_end) {
  size_t certain = std::string::npos;
  for (const std::string& stop : stops_) certain = std::min(certain, held_.find(stop));
  stopped_ = certain != std::string::npos;
  if (!stopped_) {
    certain = held_.size();
    for (const std::string& stop : stops_)
      if (!at_end) certain = std::min(certain, held_.size() - begun_stop(held_, stop));
  }
  std::string piece = held_.substr(0, certain);
  held_.erase(0, certain);
  text_ += piece;
  return piece;
}

}  // namespace weft::runtime
