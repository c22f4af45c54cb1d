// A pattern of a tokenizer.json, matched as the `tokenizers` package matches it. The package uses
// Oniguruma with Unicode 16; here PCRE2 runs a translated pattern, and characters that are newer
// than Unicode 14 are matched as older ones of the same category (unicode_stand_ins.h).
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace weft::runtime {

struct Span {
  size_t begin, end;  // bytes
};

class Pattern {
 public:
  // `where` names the pattern's place in errors. A literal must not be empty.
  static Pattern from_regex(std::string_view regex, const std::string& where);
  static Pattern from_pcre2(std::string_view regex, const std::string& where);
  static Pattern from_literal(std::string_view text, const std::string& where);

  // All matches, left to right, none overlapping; an empty match is skipped where the last match
  // ended. `text` is well-formed UTF-8. Throws Error where PCRE2 gives up (its limits on work).
  void find_all(std::string_view text, std::vector<Span>& matches) const;

  bool is_literal() const { return !literal_.empty(); }
  const std::string& literal() const { return literal_; }

  struct Compiled;  // PCRE2's objects

 private:
  Pattern() = default;
  std::string literal_;
  // Shared by copies of the pattern; PCRE2's match data inside serve one thread at a time.
  std::shared_ptr<Compiled> compiled_;
};

// An Oniguruma pattern (Ruby syntax) in PCRE2's syntax: \s, \w, {n,m}+ and others differ. Throws
// Error naming what has no counterpart.
std::string pcre2_from_oniguruma(std::string_view pattern, const std::string& where);

}  // namespace weft::runtime
