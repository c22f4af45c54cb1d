// Oniguruma's Ruby syntax written in PCRE2's. What means the same in both is copied; what differs
// is rewritten; what can't be is refused, for a pattern read wrongly would give wrong tokens.
#include <cctype>

#include "runtime/base/error.h"
#include "runtime/tokenizer/pattern.h"

namespace weft::runtime {
namespace {

// The inside of a class. PCRE2's own \s has U+180E and its \w other characters.
constexpr std::string_view kSpace =
    "\\x09-\\x0d\\x20\\x85\\xa0\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}"
    "\\x{3000}";
constexpr std::string_view kWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
// Oniguruma counts the Latin-1 fractions and superscripts as \w, but not inside a class.
constexpr std::string_view kWordAlone =
    "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\xb2\\xb3\\xb9\\xbc-\\xbe";

class Translation {
 public:
  Translation(std::string_view pattern, const std::string& where)
      : pattern_(pattern), where_(where) {}

  std::string run() {
    while (at_ < pattern_.size()) item();
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(size_t at, std::string_view why) const {
    throw input_error("{}: pattern `{}`, byte {}: {}", where_, pattern_, at, why);
  }
  char peek(size_t ahead = 0) const {
    return at_ + ahead < pattern_.size() ? pattern_[at_ + ahead] : '\0';
  }
  bool next_is(std::string_view text) const { return pattern_.substr(at_).starts_with(text); }
  void copy(size_t n) {
    out_ += pattern_.substr(at_, n);
    at_ += n;
  }

  void item() {
    switch (peek()) {
      case '\\':
        atom_ = out_.size();
        return escape(false);
      case '[':
        atom_ = out_.size();
        return character_class();
      case '(':
        return open_group();
      case ')':
        if (groups_.empty()) refuse(at_, "a ) without (");
        atom_ = groups_.back();
        groups_.pop_back();
        return copy(1);
      case '{':
        return interval();
      case '*':
      case '+':
      case '?':
        copy(1);
        if (peek() == '?' || peek() == '+') copy(1);  // lazy, possessive: the same in both
        return;
      default:
        atom_ = out_.size();
        do {  // a whole character, for {n,m}+ wraps it
          copy(1);
        } while ((static_cast<unsigned char>(peek()) & 0xC0) == 0x80);
    }
  }

  void shorthand(std::string_view set, bool negated, bool in_class) {
    if (in_class && negated) refuse(at_, "a negated shorthand inside a class is not read");
    if (!in_class) out_ += negated ? "[^" : "[";
    out_ += set;
    if (!in_class) out_ += ']';
    at_ += 2;
  }

  void escape(bool in_class) {
    const char c = peek(1);
    if (c == 's' || c == 'S') return shorthand(kSpace, c == 'S', in_class);
    if (c == 'w' || c == 'W') return shorthand(in_class ? kWord : kWordAlone, c == 'W', in_class);
    if (c == 'p' || c == 'P') return property();
    if (c == 'x') {  // \xHH or \x{H…}
      const size_t close = peek(2) == '{' ? pattern_.find('}', at_) : at_ + 1;
      if (close == std::string_view::npos) refuse(at_, "a \\x{ without }");
      return copy(close + 1 - at_);
    }
    if (c == 'u') return code_point();
    if (c == 'v') {  // a vertical tab, not PCRE2's class of line ends
      out_ += "\\x0b";
      at_ += 2;
      return;
    }
    if (c == '\0') refuse(at_, "a \\ at the end");
    const bool known =
        std::string_view(in_class ? "dDnrtfae" : "dDnrtfaeAzZG").find(c) != std::string_view::npos;
    if (std::isalnum(static_cast<unsigned char>(c)) && !known) {
      refuse(at_, "this escape is not read");
    }
    copy(2);
  }

  // General categories alone: scripts and others are sets that change with Unicode's version.
  void property() {
    const size_t close = pattern_.find('}', at_);
    if (peek(2) != '{' || close == std::string_view::npos) refuse(at_, "\\p without {name}");
    std::string_view name = pattern_.substr(at_ + 3, close - at_ - 3);
    if (name.starts_with('^')) name.remove_prefix(1);
    static constexpr std::string_view kCategories =
        " L Lu Ll Lt Lm Lo M Mn Mc Me N Nd Nl No P Pc Pd Ps Pe Pi Pf Po S Sm Sc Sk So Z Zs Zl Zp "
        "C Cc Cf Co Cn ";
    const bool known = !name.empty() && name.find(' ') == std::string_view::npos &&
                       kCategories.find(" " + std::string(name) + " ") != std::string_view::npos;
    if (!known) refuse(at_, "only general categories (\\p{L}, \\p{Nd}, …) are read");
    copy(close + 1 - at_);
  }

  void code_point() {
    const std::string_view digits = pattern_.substr(at_ + 2).substr(0, 4);
    if (digits.size() < 4 || digits.find_first_not_of("0123456789abcdefABCDEF") != digits.npos) {
      refuse(at_, "\\u needs four hexadecimal digits");
    }
    out_.append("\\x{").append(digits).append("}");
    at_ += 6;
  }

  void character_class() {
    const size_t begin = at_;
    copy(1);
    if (peek() == '^') copy(1);
    if (peek() == ']') refuse(at_, "a class that starts with ] is not read");
    while (peek() != ']') {
      if (at_ >= pattern_.size()) refuse(begin, "a [ without ]");
      if (peek() == '[') refuse(at_, "a class inside a class is not read");
      if (next_is("&&")) refuse(at_, "the intersection of classes is not read");
      if (peek() == '\\') {
        escape(true);
      } else {
        copy(1);
      }
    }
    copy(1);
  }

  void open_group() {
    const bool at_start = at_ == 0;
    groups_.push_back(out_.size());
    if (!next_is("(?")) return copy(1);
    for (std::string_view kind : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:", "(?-i:"}) {
      if (next_is(kind)) return copy(kind.size());
    }
    // Elsewhere the two disagree on how far (?i) reaches.
    if (!at_start || !next_is("(?i)")) refuse(at_, "this kind of group is not read");
    groups_.pop_back();
    copy(4);
  }

  // In Ruby a possessive {n,m}+ is a plain repetition of {n,m}, {n}? is an optional {n}, and {,m}
  // starts at 0.
  void interval() {
    size_t end = at_ + 1;
    const auto digits = [&] {
      const size_t from = end;
      while (end < pattern_.size() && std::isdigit(static_cast<unsigned char>(pattern_[end]))) {
        ++end;
      }
      return pattern_.substr(from, end - from);
    };
    const std::string_view low = digits();
    const bool comma = end < pattern_.size() && pattern_[end] == ',';
    if (comma) ++end;
    const std::string_view high = comma ? digits() : low;
    const bool closed = end < pattern_.size() && pattern_[end] == '}';
    if (!closed || (low.empty() && high.empty())) {  // a literal brace
      atom_ = out_.size();
      out_ += '\\';
      return copy(1);
    }
    out_ += fmt::format("{{{}{}{}}}", low.empty() ? "0" : low, comma ? "," : "", comma ? high : "");
    at_ = end + 1;
    if (peek() == '+' || (peek() == '?' && !comma)) {
      out_.insert(atom_, "(?:");
      out_ += ')';
      copy(1);
    } else if (peek() == '?') {
      copy(1);
    }
  }

  std::string_view pattern_;
  const std::string& where_;
  size_t at_ = 0;
  std::string out_;
  size_t atom_ = 0;             // where the last thing that can be repeated begins in out_
  std::vector<size_t> groups_;  // where the open groups begin in out_
};

}  // namespace

std::string pcre2_from_oniguruma(std::string_view pattern, const std::string& where) {
  return Translation(pattern, where).run();
}

}  // namespace weft::runtime
