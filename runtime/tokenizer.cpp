// The order of the parts: added tokens out of the raw text, the rest normalized, cut into words,
// merged by BPE, special tokens around it; and back through the decoder.
#include "runtime/tokenizer.h"

#include <algorithm>

#include "runtime/base/file.h"
#include "runtime/tokenizer/added_tokens.h"
#include "runtime/tokenizer/bpe.h"
#include "runtime/tokenizer/normalizer.h"
#include "runtime/tokenizer/post_processor.h"
#include "runtime/tokenizer/pretokenizer.h"
#include "runtime/tokenizer/token_decoder.h"
#include "runtime/tokenizer/tokenizer_json.h"
#include "runtime/tokenizer/utf8.h"

namespace weft::runtime {

struct Tokenizer::State {
  Normalizer normalizer;
  Bpe bpe;
  AddedTokens added;
  Pretokenizer pretokenizer;
  PostProcessor post_processor;
  TokenDecoder decoder;

  const std::string* token_of(int32_t id) const {
    const std::string* token = added.vocabulary().token_of(id);
    return token != nullptr ? token : bpe.vocabulary().token_of(id);
  }
  // Ids without a token give nothing, as in the package.
  void decode_next(int32_t id, bool skip_special_tokens, std::vector<DecodeState>& states,
                   std::string& text) const {
    const std::string* token = token_of(id);
    if (token == nullptr || (skip_special_tokens && added.is_special(*token))) return;
    decoder.push(states, *token, text);
  }
};

namespace {

template <class Part>
Part part_of(const JsonNode& root, const std::string& key) {
  const auto node = root.find(key);
  return node ? Part::from_json(*node) : Part();
}

void check_ids(const PostProcessor& processor, const Tokenizer::State& state,
               const std::string& where) {
  for (int32_t id : processor.form()) {
    if (id == PostProcessor::kText || state.token_of(id) != nullptr) continue;
    throw input_error("{}: post_processor: id {} is no token's", where, id);
  }
}

}  // namespace

Tokenizer::Tokenizer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Tokenizer::~Tokenizer() = default;
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;

Tokenizer Tokenizer::from_file(const std::string& path) {
  return from_json(read_text(path, kMostJsonBytes), path);
}

// Truncation and padding, which the package also applies, are settings of training scripts:
// serving ignores them, as transformers does.
Tokenizer Tokenizer::from_json(std::string_view json, const std::string& where) {
  const nlohmann::json document = parse_tokenizer_json(json, where);
  const JsonNode root(document, where);
  root.expect_object();
  if (const auto version = root.find("version"); version && version->text() != "1.0") {
    throw version->error("version \"{}\"; weft reads 1.0", version->text());
  }
  auto normalizer = part_of<Normalizer>(root, "normalizer");
  Bpe bpe = Bpe::from_json(root.at("model"));
  AddedTokens added =
      AddedTokens::from_json(root.find("added_tokens"), bpe.vocabulary(), normalizer);
  auto state = std::make_unique<State>(State{
      std::move(normalizer), std::move(bpe), std::move(added),
      part_of<Pretokenizer>(root, "pre_tokenizer"), part_of<PostProcessor>(root, "post_processor"),
      TokenDecoder::from_json(root.find("decoder"))});
  check_ids(state->post_processor, *state, where);
  return Tokenizer(std::move(state));
}

std::vector<int32_t> Tokenizer::encode(std::string_view text, bool add_special_tokens) const {
  PiecedText pieced = state_->added.extract(to_valid_utf8(text), state_->normalizer);
  state_->pretokenizer.apply(pieced);
  std::vector<int32_t> ids;
  const std::string_view all = pieced.text;
  for (const Piece& piece : pieced.pieces) {
    if (piece.token >= 0) {
      ids.push_back(piece.token);
    } else {
      state_->bpe.encode(all.substr(piece.begin, piece.end - piece.begin), ids);
    }
  }
  return add_special_tokens ? state_->post_processor.apply(std::move(ids)) : ids;
}

std::string Tokenizer::decode(const std::vector<int32_t>& ids, bool skip_special_tokens) const {
  std::string text;
  std::vector<DecodeState> states = state_->decoder.start();
  for (int32_t id : ids) state_->decode_next(id, skip_special_tokens, states, text);
  state_->decoder.finish(states, text);
  return text;
}

size_t Tokenizer::size() const {
  return std::max(state_->bpe.vocabulary().size(), state_->added.vocabulary().size());
}

bool Tokenizer::is_special(int32_t id) const {
  const std::string* token = state_->token_of(id);
  return token != nullptr && state_->added.is_special(*token);
}

int32_t Tokenizer::id_of(std::string_view token) const {
  const int32_t id = state_->added.vocabulary().id_of(token);
  return id >= 0 ? id : state_->bpe.vocabulary().id_of(token);
}

StreamDecoder::StreamDecoder(const Tokenizer& tokenizer, bool skip_special_tokens)
    : tokenizer_(tokenizer.state_.get()),
      skip_special_tokens_(skip_special_tokens),
      states_(tokenizer_->decoder.start()) {}

std::string StreamDecoder::push(int32_t id) {
  std::string text;
  tokenizer_->decode_next(id, skip_special_tokens_, states_, text);
  return text;
}

std::string StreamDecoder::finish() {
  std::string text;
  tokenizer_->decoder.finish(states_, text);
  return text;
}

}  // namespace weft::runtime
