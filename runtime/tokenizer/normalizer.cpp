// Each step makes a new text of the whole; what could grow it without end is bounded.
#include "runtime/tokenizer/normalizer.h"

#include "runtime/tokenizer/utf8.h"

namespace weft::runtime {
namespace {

constexpr size_t kMostSteps = 64;
// A Replace could double the text in every step.
constexpr size_t kMostTextBytes = size_t{1} << 30;
// The package inserts a content there that it then overwrites in part.
constexpr std::string_view kEmptyMatch = "a Replace normalizer's pattern matches an empty text";

std::string replace_all(std::string_view text, const Normalizer::Replace& step, bool& keeps_start) {
  std::vector<Span> matches;
  step.pattern.find_all(text, matches);
  if (matches.empty()) return std::string(text);
  if (matches[0].begin == 0 && step.content.empty()) keeps_start = false;
  std::string result;
  size_t at = 0;
  for (const Span& match : matches) {
    if (match.begin == match.end) throw run_error("{} at byte {}", kEmptyMatch, match.begin);
    result.append(text, at, match.begin - at);
    result += step.content;
    at = match.end;
    if (result.size() > kMostTextBytes) throw run_error("normalized text exceeds 1 GiB");
  }
  return result.append(text, at);
}

struct Apply {
  std::string text;
  bool& keeps_start;

  void operator()(NormalForm form) { text = normalize(text, form); }
  void operator()(const Normalizer::Prepend& step) {
    if (!text.empty()) text.insert(0, step.text);
  }
  void operator()(const Normalizer::Replace& step) { text = replace_all(text, step, keeps_start); }
  void operator()(const Normalizer::Lowercase&) { text = lower_case(text); }
  void operator()(const Normalizer::Strip& step) {
    const size_t begin = step.left ? skip_white_space(text, 0) : 0;
    const size_t end = step.right ? skip_white_space_back(text, text.size(), begin) : text.size();
    if (begin > 0) keeps_start = false;
    text = text.substr(begin, end - begin);
  }
};

}  // namespace

Pattern pattern_from_json(const JsonNode& node) {
  if (const auto regex = node.find("Regex")) {
    return Pattern::from_regex(regex->text(), regex->where());
  }
  const JsonNode literal = node.at("String");
  return Pattern::from_literal(literal.text(), literal.where());
}

Normalizer Normalizer::from_json(const JsonNode& node) {
  Normalizer normalizer;
  normalizer.add(node);
  return normalizer;
}

void Normalizer::add(const JsonNode& node) {
  const std::string& kind = node.at("type").text();
  if (kind == "Sequence") {
    for (const JsonNode& item : node.at("normalizers").items()) add(item);
  } else if (kind == "NFC") {
    steps_.emplace_back(NormalForm::kNfc);
  } else if (kind == "NFD") {
    steps_.emplace_back(NormalForm::kNfd);
  } else if (kind == "NFKC") {
    steps_.emplace_back(NormalForm::kNfkc);
  } else if (kind == "NFKD") {
    steps_.emplace_back(NormalForm::kNfkd);
  } else if (kind == "Prepend") {
    steps_.emplace_back(Prepend{node.at("prepend").text()});
  } else if (kind == "Replace") {
    Replace step{pattern_from_json(node.at("pattern")), node.at("content").text()};
    std::vector<Span> matches;
    step.pattern.find_all("", matches);
    if (!matches.empty()) throw node.error("{}; that is not supported", kEmptyMatch);
    steps_.emplace_back(std::move(step));
  } else if (kind == "Lowercase") {
    steps_.emplace_back(Lowercase{});
  } else if (kind == "Strip") {
    steps_.emplace_back(Strip{node.flag("strip_left", true), node.flag("strip_right", true)});
  } else {
    throw node.error(
        "normalizer \"{}\" is not supported; read are NFC, NFD, NFKC, NFKD, Prepend, Replace, "
        "Lowercase, Strip and Sequence",
        kind);
  }
  if (steps_.size() > kMostSteps) throw node.error("more than {} steps", kMostSteps);
}

std::string Normalizer::apply(std::string_view text, bool& keeps_start) const {
  Apply apply{std::string(text), keeps_start};
  for (const Step& step : steps_) std::visit(apply, step);
  return std::move(apply.text);
}

}  // namespace weft::runtime
