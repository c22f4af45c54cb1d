// Splits cut the offsets of the pieces and leave the text alone; marks rewrite the text once, and
// the offsets with it.
#include "runtime/tokenizer/pretokenizer.h"

#include <algorithm>
#include <array>

#include "runtime/tokenizer/normalizer.h"
#include "runtime/tokenizer/utf8.h"

namespace weft::runtime {
namespace {

using Behavior = Pretokenizer::Behavior;

constexpr size_t kMostSteps = 64;
constexpr char32_t kFirstMark = 0x100;

constexpr std::string_view kGpt2 =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
// What Rust calls numeric is Unicode 17's N: PCRE2's, with stand-ins for 15 and 16.
constexpr std::string_view kNumeric = R"([\p{N}\x{11DE0}-\x{11DE9}\x{16FF4}-\x{16FF6}])";

constexpr bool prints(unsigned byte) {
  return (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
}

struct ByteMarks {
  std::array<char32_t, 256> characters{};
  std::array<int, 0x144> bytes{};

  constexpr ByteMarks() {
    for (int& byte : bytes) byte = -1;
    char32_t next = kFirstMark;
    for (unsigned byte = 0; byte < 256; ++byte) {
      characters[byte] = prints(byte) ? byte : next++;
      bytes[characters[byte]] = static_cast<int>(byte);
    }
  }
};
constexpr ByteMarks kByteMarks;

struct Cut {
  size_t begin, end;
  bool match;
};

// Matches and what lies between them, which together are the whole text.
void cuts_of(std::string_view text, const std::vector<Span>& matches, bool invert,
             std::vector<Cut>& cuts) {
  cuts.clear();
  size_t at = 0;
  for (const Span& match : matches) {
    if (at < match.begin) cuts.push_back({at, match.begin, invert});
    cuts.push_back({match.begin, match.end, !invert});
    at = match.end;
  }
  if (at < text.size() || cuts.empty()) cuts.push_back({at, text.size(), invert});
}

// A match joins the neighbour it meets first in the order of walking, unless that is a match, too.
template <class Iterator, class Join>
void merge_matches(Iterator begin, Iterator end, std::vector<Cut>& merged, Join join) {
  bool last_matched = false;
  for (Iterator cut = begin; cut != end; ++cut) {
    if (cut->match && !last_matched && !merged.empty()) {
      join(merged.back(), *cut);
    } else {
      merged.push_back(*cut);
    }
    last_matched = cut->match;
  }
}

void merge(std::vector<Cut>& cuts, Behavior behavior) {
  std::vector<Cut> merged;
  if (behavior == Behavior::kRemoved) {
    std::erase_if(cuts, [](const Cut& cut) { return cut.match; });
    return;
  }
  if (behavior == Behavior::kContiguous) {
    for (const Cut& cut : cuts) {
      const bool joins = !merged.empty() && merged.back().match == cut.match;
      if (joins) merged.back().end = cut.end;
      if (!joins) merged.push_back(cut);
    }
  } else if (behavior == Behavior::kMergedWithPrevious) {
    merge_matches(cuts.begin(), cuts.end(), merged,
                  [](Cut& to, const Cut& cut) { to.end = cut.end; });
  } else if (behavior == Behavior::kMergedWithNext) {
    merge_matches(cuts.rbegin(), cuts.rend(), merged,
                  [](Cut& to, const Cut& cut) { to.begin = cut.begin; });
    std::reverse(merged.begin(), merged.end());
  } else {
    return;
  }
  cuts.swap(merged);
}

// Rewrites every text piece into a new buffer by write(piece, its text, new buffer).
template <class Write>
void rewrite(PiecedText& text, Write write) {
  std::string buffer;
  buffer.reserve(text.text.size() + text.text.size() / 2);
  for (Piece& piece : text.pieces) {
    const size_t begin = buffer.size();
    if (piece.token < 0) {
      write(piece, std::string_view(text.text).substr(piece.begin, piece.end - piece.begin),
            buffer);
    }
    piece.begin = begin;
    piece.end = buffer.size();
  }
  text.text = std::move(buffer);
}

struct Apply {
  PiecedText& text;

  void operator()(const Pretokenizer::Split& step) {
    std::vector<Piece> pieces;
    std::vector<Span> matches;
    std::vector<Cut> cuts;
    for (const Piece& piece : text.pieces) {
      if (piece.token >= 0) {
        pieces.push_back(piece);
        continue;
      }
      const auto part = std::string_view(text.text).substr(piece.begin, piece.end - piece.begin);
      step.pattern.find_all(part, matches);
      cuts_of(part, matches, step.invert, cuts);
      merge(cuts, step.behavior);
      for (const Cut& cut : cuts) {
        if (cut.begin == cut.end) continue;
        pieces.push_back(
            {piece.begin + cut.begin, piece.begin + cut.end, -1, piece.at_start && cut.begin == 0});
      }
    }
    text.pieces = std::move(pieces);
  }

  void operator()(const Pretokenizer::PrefixSpace&) {
    rewrite(text, [](const Piece&, std::string_view part, std::string& to) {
      if (!part.empty() && part[0] != ' ') to += ' ';
      to += part;
    });
  }

  void operator()(const Pretokenizer::ByteMark&) {
    rewrite(text, [](const Piece&, std::string_view part, std::string& to) {
      for (char c : part) append_utf8(to, character_of_byte(static_cast<unsigned char>(c)));
    });
  }

  void operator()(const Pretokenizer::SpaceMark& step) {
    rewrite(text, [&](const Piece& piece, std::string_view part, std::string& to) {
      const bool prepends = step.prepend == Pretokenizer::Prepend::kAlways ||
                            (step.prepend == Pretokenizer::Prepend::kFirst && piece.at_start);
      const bool marked = part.starts_with(' ') || part.starts_with(step.mark);
      if (prepends && !part.empty() && !marked) to += step.mark;
      for (char c : part) {
        if (c == ' ') to += step.mark;
        if (c != ' ') to += c;
      }
    });
  }
};

Behavior behavior_from_json(const JsonNode& node) {
  const std::string& name = node.text();
  if (name == "Isolated") return Behavior::kIsolated;
  if (name == "Removed") return Behavior::kRemoved;
  if (name == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::kMergedWithNext;
  if (name == "Contiguous") return Behavior::kContiguous;
  throw node.error(
      "unknown behavior \"{}\"; known are Isolated, Removed, MergedWithPrevious, MergedWithNext "
      "and Contiguous",
      name);
}

}  // namespace

char32_t character_of_byte(unsigned char byte) { return kByteMarks.characters[byte]; }

int byte_of_character(char32_t code) {
  return code < kByteMarks.bytes.size() ? kByteMarks.bytes[code] : -1;
}

Pretokenizer::Prepend Pretokenizer::prepend_from_json(const JsonNode& node) {
  Prepend prepend = Prepend::kAlways;
  const auto scheme = node.find("prepend_scheme");
  if (scheme) {
    const std::string& name = scheme->text();
    if (name != "always" && name != "first" && name != "never") {
      throw scheme->error("unknown scheme \"{}\"; known are always, first and never", name);
    }
    if (name == "first") prepend = Prepend::kFirst;
    if (name == "never") prepend = Prepend::kNever;
  }
  // The older way to say it.
  if (node.flag("add_prefix_space", true)) return prepend;
  if (scheme && prepend != Prepend::kNever) {
    throw node.error("add_prefix_space false contradicts prepend_scheme \"{}\"", scheme->text());
  }
  return Prepend::kNever;
}

Pretokenizer Pretokenizer::from_json(const JsonNode& node) {
  Pretokenizer pretokenizer;
  pretokenizer.add(node);
  return pretokenizer;
}

void Pretokenizer::add(const JsonNode& node) {
  const std::string& kind = node.at("type").text();
  if (kind == "Sequence") {
    for (const JsonNode& item : node.at("pretokenizers").items()) add(item);
  } else if (kind == "Split") {
    steps_.emplace_back(Split{pattern_from_json(node.at("pattern")),
                              behavior_from_json(node.at("behavior")), node.flag("invert", false)});
  } else if (kind == "Digits") {
    const bool each = node.flag("individual_digits", false);
    steps_.emplace_back(Split{Pattern::from_pcre2(kNumeric, node.where()),
                              each ? Behavior::kIsolated : Behavior::kContiguous, false});
  } else if (kind == "ByteLevel") {
    if (node.flag("add_prefix_space", true)) steps_.emplace_back(PrefixSpace{});
    if (node.flag("use_regex", true)) {
      steps_.emplace_back(
          Split{Pattern::from_regex(kGpt2, node.where()), Behavior::kIsolated, false});
    }
    steps_.emplace_back(ByteMark{});
  } else if (kind == "Metaspace") {
    const std::string& mark = node.at("replacement").text();
    steps_.emplace_back(SpaceMark{mark, prepend_from_json(node)});
    if (node.flag("split", true)) {
      steps_.emplace_back(Split{Pattern::from_literal(mark, node.at("replacement").where()),
                                Behavior::kMergedWithNext, false});
    }
  } else {
    throw node.error(
        "pre_tokenizer \"{}\" is not supported; read are Split, Digits, ByteLevel, Metaspace and "
        "Sequence",
        kind);
  }
  if (steps_.size() > kMostSteps) throw node.error("more than {} steps", kMostSteps);
}

void Pretokenizer::apply(PiecedText& text) const {
  Apply apply{text};
  for (const Step& step : steps_) std::visit(apply, step);
}

}  // namespace weft::runtime
