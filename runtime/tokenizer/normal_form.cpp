// utf8proc's tables and composition, with a sort of marks that stays linear, and the characters
// that the package does not know yet left alone.
#include "runtime/tokenizer/normal_form.h"

#include <utf8proc.h>

#include <algorithm>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/tokenizer/utf8.h"

namespace weft::runtime {
namespace {

// The longest decomposition has 18 characters (U+FDFA).
constexpr int kMostParts = 32;

utf8proc_option_t options_of(NormalForm form) {
  int options = UTF8PROC_STABLE;
  const bool composes = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  const bool compatible = form == NormalForm::kNfkc || form == NormalForm::kNfkd;
  options |= composes ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (compatible) options |= UTF8PROC_COMPAT;
  return static_cast<utf8proc_option_t>(options);
}

bool is_inert(char32_t code) {
  const auto table = inert_characters();
  const auto row =
      std::upper_bound(table.begin(), table.end(), code,
                       [](char32_t c, const CharacterRange& r) { return c < r.first; });
  return row != table.begin() && code <= row[-1].last;
}

int class_of(int32_t code) { return utf8proc_get_property(code)->combining_class; }

// Marks in canonical order. utf8proc's own sort is quadratic in a run of marks; this one is not.
void order_marks(std::vector<int32_t>& codes) {
  for (size_t i = 0; i < codes.size();) {
    if (class_of(codes[i]) == 0) {
      ++i;
      continue;
    }
    size_t end = i;
    while (end < codes.size() && class_of(codes[end]) != 0) ++end;
    std::stable_sort(codes.begin() + static_cast<ptrdiff_t>(i),
                     codes.begin() + static_cast<ptrdiff_t>(end),
                     [](int32_t a, int32_t b) { return class_of(a) < class_of(b); });
    i = end;
  }
}

// Appends the normal form of what lies between two inert characters, and clears it.
void flush(std::vector<int32_t>& codes, utf8proc_option_t options, std::string& to) {
  if (codes.empty()) return;
  order_marks(codes);
  const utf8proc_ssize_t n =
      utf8proc_normalize_utf32(codes.data(), static_cast<utf8proc_ssize_t>(codes.size()), options);
  if (n < 0) throw run_error("normal form: {}", utf8proc_errmsg(n));
  for (utf8proc_ssize_t i = 0; i < n; ++i) {
    append_utf8(to, static_cast<char32_t>(codes[static_cast<size_t>(i)]));
  }
  codes.clear();
}

void append_decomposed(char32_t code, utf8proc_option_t options, std::vector<int32_t>& codes) {
  int32_t parts[kMostParts];
  const utf8proc_ssize_t n = utf8proc_decompose_char(static_cast<utf8proc_int32_t>(code), parts,
                                                     kMostParts, options, nullptr);
  if (n < 0 || n > kMostParts) throw run_error("normal form of U+{:04X} fails", uint32_t{code});
  codes.insert(codes.end(), parts, parts + n);
}

char32_t lower_of(char32_t code) {
  const auto table = newer_lower_case();
  const auto row = std::upper_bound(table.begin(), table.end(), code,
                                    [](char32_t c, const LowerCase& r) { return c < r.first; });
  if (row != table.begin() && code <= row[-1].last) return row[-1].lower + (code - row[-1].first);
  return static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(code)));
}

}  // namespace

std::string lower_case(std::string_view text) {
  std::string result;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text, at);
    at += step.bytes;
    // U+0130 is the one character whose lower case is two: i and a dot above.
    append_utf8(result, step.code == 0x130 ? U'i' : lower_of(step.code));
    if (step.code == 0x130) append_utf8(result, 0x307);
  }
  return result;
}

std::string normalize(std::string_view text, NormalForm form) {
  const bool ascii = std::all_of(text.begin(), text.end(),
                                 [](char c) { return static_cast<unsigned char>(c) < 0x80; });
  if (ascii) return std::string(text);
  const utf8proc_option_t options = options_of(form);
  std::string result;
  result.reserve(text.size());
  std::vector<int32_t> codes;
  for (size_t at = 0; at < text.size();) {
    const Utf8Step step = utf8_step(text, at);
    at += step.bytes;
    if (is_inert(step.code)) {
      flush(codes, options, result);
      append_utf8(result, step.code);
    } else {
      append_decomposed(step.code, options, codes);
    }
  }
  flush(codes, options, result);
  return result;
}

}  // namespace weft::runtime
