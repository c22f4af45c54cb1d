#!/usr/bin/env python3
"""Writes the tokenizer's three Unicode tables (runtime/tokenizer/unicode_tables.cpp).

The `tokenizers` package, PCRE2, utf8proc and Python each carry another version of Unicode. What the
package does is measured character by character; the tables hold only where it differs:

- stand-ins: characters whose general category is not what it was in Unicode 14, which is what the
  oldest PCRE2 we build with knows;
- inert: characters that a newer Unicode decomposes or orders, while the package's normal forms
  (Unicode 9) leave them alone;
- newer lower case: characters that got one after Unicode 14.

Needs a Python whose unicodedata is version 14 (3.11), and the packages tokenizers and unicodedata2:
    scripts/make_unicode_tables.py && clang-format -i runtime/tokenizer/unicode_tables.cpp
"""
import bisect
import pathlib
import unicodedata

import unicodedata2
from tokenizers import Regex, normalizers, pre_tokenizers

CATEGORIES = """Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Zl Zp Cc Cf Co
Cn""".split()
CHARACTERS = [chr(c) for c in range(0x110000) if not 0xD800 <= c < 0xE000]


def package_categories():
    """Character -> category, as the package's regular expressions see it."""
    text = "".join(CHARACTERS)
    found = {}
    for category in CATEGORIES:
        split = pre_tokenizers.Split(Regex(r"\P{%s}" % category), "removed")
        for piece, _ in split.pre_tokenize_str(text):
            for character in piece:
                found[character] = category
    return found


def stand_ins():
    now = package_categories()
    old = {}
    for c in CHARACTERS:
        if now[c] == unicodedata.category(c):
            old.setdefault((now[c], len(c.encode())), []).append(ord(c))
    rows = []
    for c in CHARACTERS:
        if now[c] == unicodedata.category(c):
            continue
        same = old[now[c], len(c.encode())]
        place = bisect.bisect(same, ord(c))
        nearest = min(same[max(place - 1, 0):place + 1], key=lambda o: (abs(o - ord(c)), o))
        if rows and rows[-1][1] == ord(c) - 1 and category == now[c]:
            rows[-1][1] = ord(c)
            continue
        category = now[c]
        rows.append([ord(c), ord(c), nearest])
    return rows


def inert():
    """Characters that Unicode moves or changes and the package's four normal forms don't."""
    forms = {name: getattr(normalizers, name)() for name in ("NFC", "NFD", "NFKC", "NFKD")}
    rows = []
    for c in CHARACTERS:
        if ord(c) < 0x300 or not (unicodedata2.combining(c) or unicodedata2.decomposition(c)):
            continue
        # Between marks of classes 230 and 220, anything but a mark keeps them from changing places.
        probe = "a\u0301" + c + "\u0316"
        moved = forms["NFD"].normalize_str(probe) != probe
        if moved or any(form.normalize_str(c) != c for form in forms.values()):
            continue
        if any(unicodedata2.normalize(name, probe) != forms[name].normalize_str(probe)
               for name in forms):
            if rows and rows[-1][1] == ord(c) - 1:
                rows[-1][1] = ord(c)
            else:
                rows.append([ord(c), ord(c)])
    return rows


def newer_lower_case():
    lowercase = normalizers.Lowercase()
    rows = []
    for c in CHARACTERS:
        lower = lowercase.normalize_str(c)
        if lower == c.lower() or len(lower) != 1:
            continue
        if rows and rows[-1][1] == ord(c) - 1 and rows[-1][2] - rows[-1][0] == ord(lower) - ord(c):
            rows[-1][1] = ord(c)
        else:
            rows.append([ord(c), ord(c), ord(lower)])
    return rows


def main():
    assert unicodedata.unidata_version == "14.0.0", unicodedata.unidata_version
    lines = ["// Made by scripts/make_unicode_tables.py: where Unicode's versions differ.",
             '#include "runtime/tokenizer/normal_form.h"',
             '#include "runtime/tokenizer/unicode_stand_ins.h"', "",
             "namespace weft::runtime {", "namespace {", "", "constexpr StandIn kStandIns[] = {"]
    lines += ["    {0x%04X, 0x%04X, 0x%04X}," % tuple(row) for row in stand_ins()]
    lines += ["};", "", "constexpr CharacterRange kInert[] = {"]
    lines += ["    {0x%04X, 0x%04X}," % tuple(row) for row in inert()]
    lines += ["};", "", "constexpr LowerCase kLowerCase[] = {"]
    lines += ["    {0x%04X, 0x%04X, 0x%04X}," % tuple(row) for row in newer_lower_case()]
    lines += ["};", "", "}  // namespace", "",
              "std::span<const StandIn> stand_ins() { return kStandIns; }", "",
              "std::span<const CharacterRange> inert_characters() { return kInert; }", "",
              "std::span<const LowerCase> newer_lower_case() { return kLowerCase; }", "",
              "}  // namespace weft::runtime", ""]
    target = pathlib.Path(__file__).resolve().parent.parent / "runtime" / "tokenizer"
    (target / "unicode_tables.cpp").write_text("\n".join(lines))


if __name__ == "__main__":
    main()
