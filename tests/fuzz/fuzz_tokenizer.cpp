// Tokenizers and texts. J: a tokenizer.json, a zero byte, then a text for it. D: a text for the
// demo model's tokenizer, which must give it back. Streaming must say what decoding at once says.
#include "runtime/base/file.h"
#include "runtime/base/text.h"
#include "runtime/tokenizer.h"
#include "tests/fuzz/fuzz.h"

namespace weft::fuzz {
namespace {

using runtime::StreamDecoder;
using runtime::Tokenizer;

std::vector<int32_t> encode_and_decode(const Tokenizer& tokenizer, std::string_view text) {
  const std::vector<int32_t> ids = tokenizer.encode(text);
  StreamDecoder stream(tokenizer);
  std::string streamed;
  for (const int32_t id : ids) {
    FUZZ_EXPECT(id >= 0 && static_cast<size_t>(id) < tokenizer.size());
    const std::string piece = stream.push(id);
    FUZZ_EXPECT(is_utf8(piece));
    streamed += piece;
  }
  streamed += stream.finish();
  FUZZ_EXPECT(streamed == tokenizer.decode(ids));
  return ids;
}

void fuzz_json(std::string_view input) {
  const size_t end = std::min(input.find('\0'), input.size());
  const Tokenizer tokenizer = Tokenizer::from_json(input.substr(0, end), "fuzz");
  encode_and_decode(tokenizer, input.substr(std::min(end + 1, input.size())));
}

void fuzz_demo(std::string_view text) {
  constexpr char kPath[] = WEFT_SOURCE_DIR "/configs/models/demo/tokenizer.json";
  static const Tokenizer tokenizer = Tokenizer::from_file(kPath);
  encode_and_decode(tokenizer, text);
  if (!is_utf8(text)) return;
  FUZZ_EXPECT(tokenizer.decode(tokenizer.encode(text, false), false) == text);
}

}  // namespace
}  // namespace weft::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n) {
  using namespace weft::fuzz;
  return run_kind({{'J', fuzz_json}, {'D', fuzz_demo}}, data, n);
}
