// Steps as a chain: each takes a piece, keeps what a later piece may change, and hands on the rest.
#include "runtime/tokenizer/token_decoder.h"

#include <utility>

#include "runtime/base/error.h"
#include "runtime/base/text.h"
#include "runtime/tokenizer/normalizer.h"
#include "runtime/tokenizer/pretokenizer.h"
#include "runtime/tokenizer/utf8.h"

namespace weft::runtime {
namespace {

constexpr size_t kMostSteps = 64;
constexpr std::string_view kReplacement = "\xEF\xBF\xBD";

// The byte of "<0xE4>", or -1.
int byte_of_token(std::string_view token) {
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  const auto digit = [](char c) {
    if (c >= '0' && c <= '9') return c - '0';
    if (c >= 'a' && c <= 'f') return c - 'a' + 10;
    if (c >= 'A' && c <= 'F') return c - 'A' + 10;
    return -1;
  };
  const int low = digit(token[4]);
  const int high = token[3] == '+' ? 0 : digit(token[3]);  // Rust reads a sign
  return low < 0 || high < 0 ? -1 : high * 16 + low;
}

}  // namespace

// One call of push or finish on its way through the steps. A piece `begins` where it is the first
// of its token; pieces of a token come in order.
struct DecodeRun {
  const TokenDecoder& decoder;
  std::vector<DecodeState>& states;
  std::string& text;

  void piece(size_t at, std::string_view part, bool begins) {
    if (at == states.size()) {
      text += part;
      return;
    }
    std::visit([&](const auto& step) { apply(step, at, part, begins); }, decoder.steps_[at]);
  }

  void end(size_t at) {
    std::visit([&](const auto& step) { end_of(step, at); }, decoder.steps_[at]);
  }

  // A step that makes one token of all hands on pieces of it.
  void continue_token(size_t at, std::string_view part) {
    const bool begins = states[at].tokens++ == 0;
    if (begins || !part.empty()) piece(at + 1, part, begins);
  }

  void apply(const TokenDecoder::Join&, size_t at, std::string_view part, bool begins) {
    const bool joins = begins && states[at].tokens++ > 0;
    piece(at + 1, joins ? " " + std::string(part) : std::string(part), begins);
  }

  void apply(const TokenDecoder::Replace& step, size_t at, std::string_view part, bool begins) {
    std::vector<Span> matches;
    step.pattern.find_all(part, matches);
    std::string result;
    size_t done = 0;
    for (const Span& match : matches) {
      result.append(part, done, match.begin - done).append(step.content);
      done = match.end;
    }
    piece(at + 1, result.append(part, done), begins);
  }

  void apply(const TokenDecoder::ByteFallback& step, size_t at, std::string_view part, bool) {
    const int byte = byte_of_token(part);
    if (byte >= 0) {
      states[at].held += static_cast<char>(byte);
      return;
    }
    end_of(step, at);
    piece(at + 1, part, true);
  }

  void apply(const TokenDecoder::Fuse&, size_t at, std::string_view part, bool) {
    continue_token(at, part);
  }

  void apply(const TokenDecoder::ByteUnmark&, size_t at, std::string_view part, bool) {
    std::string& held = states[at].held;
    const size_t before = held.size();
    for (size_t i = 0; i < part.size();) {
      const Utf8Step step = utf8_step(part, i);
      const int byte = byte_of_character(step.code);
      if (byte < 0) {  // a token that is not written in bytes stands for itself
        held.resize(before);
        held += part;
        break;
      }
      held += static_cast<char>(byte);
      i += step.bytes;
    }
    const size_t settled = utf8_settled_bytes(held);
    const std::string ready = to_valid_utf8(std::string_view(held).substr(0, settled));
    held.erase(0, settled);
    continue_token(at, ready);
  }

  void apply(const TokenDecoder::SpaceUnmark& step, size_t at, std::string_view part, bool begins) {
    if (begins) ++states[at].tokens;
    const bool drops = step.drops_first && states[at].tokens == 1;
    std::string result;
    for (size_t i = 0; i < part.size();) {
      const bool mark = part.substr(i).starts_with(step.mark);
      if (mark && !drops) result += ' ';
      if (!mark) result += part[i];
      i += mark ? step.mark.size() : 1;
    }
    piece(at + 1, result, begins);
  }

  // Characters at the end are held until it is known whether the token ends there.
  void apply(const TokenDecoder::Strip& step, size_t at, std::string_view part, bool begins) {
    DecodeState& state = states[at];
    const size_t width = step.character.size();
    if (begins) {
      state.held.clear();
      state.stripped = 0;
    }
    while (state.stripped < step.start && part.starts_with(step.character)) {
      part.remove_prefix(width);
      ++state.stripped;
    }
    if (!part.empty()) state.stripped = step.start;
    std::string whole = state.held + std::string(part);
    size_t keep = whole.size(), n = 0;
    while (n < step.stop && std::string_view(whole).substr(0, keep).ends_with(step.character)) {
      keep -= width;
      ++n;
    }
    state.held = whole.substr(keep);
    whole.resize(keep);
    if (begins || !whole.empty()) piece(at + 1, whole, begins);
  }

  void end_of(const TokenDecoder::ByteFallback&, size_t at) {
    const std::string held = std::exchange(states[at].held, {});
    if (held.empty()) return;
    if (is_utf8(held)) return piece(at + 1, held, true);
    for (size_t i = 0; i < held.size(); ++i) piece(at + 1, kReplacement, true);
  }

  void end_of(const TokenDecoder::ByteUnmark&, size_t at) {
    const std::string held = std::exchange(states[at].held, {});
    if (!held.empty()) continue_token(at, to_valid_utf8(held));
  }

  template <class Step>
  void end_of(const Step&, size_t) {}
};

void TokenDecoder::push(std::vector<DecodeState>& states, std::string_view token,
                        std::string& text) const {
  DecodeRun{*this, states, text}.piece(0, token, true);
}

void TokenDecoder::finish(std::vector<DecodeState>& states, std::string& text) const {
  DecodeRun run{*this, states, text};
  for (size_t at = 0; at < steps_.size(); ++at) run.end(at);
}

TokenDecoder TokenDecoder::from_json(const std::optional<JsonNode>& node) {
  TokenDecoder decoder;
  if (node) decoder.add(*node);
  if (!node) decoder.steps_.emplace_back(Join{});
  return decoder;
}

void TokenDecoder::add(const JsonNode& node) {
  const std::string& kind = node.at("type").text();
  const auto needs_whole_tokens = [&] {
    if (fuses_) throw node.error("decoder \"{}\" after one that joins all tokens", kind);
  };
  const auto count = [&](const std::string& key) {
    return static_cast<size_t>(node.at(key).token_id());
  };
  if (kind == "Sequence") {
    for (const JsonNode& item : node.at("decoders").items()) add(item);
  } else if (kind == "Replace") {
    Pattern pattern = pattern_from_json(node.at("pattern"));
    // One character can't lie across two pieces of a joined token.
    const bool one_character =
        pattern.is_literal() && utf8_step(pattern.literal(), 0).bytes == pattern.literal().size();
    if (!one_character) needs_whole_tokens();
    steps_.emplace_back(Replace{std::move(pattern), node.at("content").text()});
  } else if (kind == "ByteFallback") {
    needs_whole_tokens();
    steps_.emplace_back(ByteFallback{});
  } else if (kind == "Fuse") {
    steps_.emplace_back(Fuse{});
    fuses_ = true;
  } else if (kind == "Strip") {
    const std::string& character = node.at("content").text();
    if (character.empty()) throw node.error("Strip without content");
    steps_.emplace_back(Strip{character, count("start"), count("stop")});
  } else if (kind == "ByteLevel") {
    needs_whole_tokens();
    steps_.emplace_back(ByteUnmark{});
    fuses_ = true;
  } else if (kind == "Metaspace") {
    const std::string& mark = node.at("replacement").text();
    if (mark.empty()) throw node.error("Metaspace without replacement");
    steps_.emplace_back(
        SpaceUnmark{mark, Pretokenizer::prepend_from_json(node) != Pretokenizer::Prepend::kNever});
  } else {
    throw node.error(
        "decoder \"{}\" is not supported; read are Replace, ByteFallback, Fuse, Strip, ByteLevel, "
        "Metaspace and Sequence",
        kind);
  }
  if (steps_.size() > kMostSteps) throw node.error("more than {} steps", kMostSteps);
}

}  // namespace weft::runtime
