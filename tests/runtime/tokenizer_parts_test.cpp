// The tokenizer's parts against slow and plain versions of themselves.
#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "runtime/base/text.h"
#include "runtime/tokenizer/merge_queue.h"
#include "runtime/tokenizer/normal_form.h"
#include "runtime/tokenizer/pattern.h"
#include "runtime/tokenizer/phrase_finder.h"
#include "runtime/tokenizer/unicode_stand_ins.h"
#include "runtime/tokenizer/utf8.h"

namespace weft::runtime {
namespace {

std::string random_text(std::mt19937& random, std::string_view alphabet, size_t n) {
  std::string text;
  for (size_t i = 0; i < n; ++i) text += alphabet[random() % alphabet.size()];
  return text;
}

TEST(PhraseFinder, FindsTheLongestOfTheLeftmost) {
  std::mt19937 random(5);
  for (int round = 0; round < 500; ++round) {
    std::vector<std::string> phrases(1 + random() % 7);
    for (auto& phrase : phrases) phrase = random_text(random, "abc", 1 + random() % 5);
    const PhraseFinder finder(phrases);
    const std::string text = random_text(random, "abcd", 33);
    for (size_t at = 0; at < text.size();) {
      size_t begin = at, longest = 0, phrase = 0;
      for (; begin < text.size() && longest == 0; begin += longest == 0) {
        for (size_t i = 0; i < phrases.size(); ++i) {
          const bool here = std::string_view(text).substr(begin).starts_with(phrases[i]);
          if (!here || phrases[i].size() <= longest) continue;
          longest = phrases[i].size();
          phrase = i;
        }
      }
      PhraseFinder::Match match{};
      ASSERT_EQ(finder.next(text, at, match), longest > 0) << text << " at " << at;
      if (longest == 0) break;
      EXPECT_EQ(match.begin, begin);
      EXPECT_EQ(match.end, begin + longest);
      EXPECT_EQ(match.phrase, phrase);
      at = match.end;
    }
  }
}

TEST(MergeQueue, TakesTheLowestRankAndThenTheLeftmost) {
  std::mt19937 random(6);
  for (const size_t n_symbols : {size_t{31}, size_t{5000}}) {
    MergeQueue queue;
    queue.start(n_symbols);
    std::vector<std::pair<uint32_t, uint32_t>> waiting;
    for (int round = 0; round < 4000; ++round) {
      if (random() % 3 > 0) {
        const MergeCandidate candidate{uint32_t(random() % 5), uint32_t(random() % n_symbols)};
        queue.push(candidate);
        waiting.emplace_back(candidate.rank, candidate.place);
        continue;
      }
      MergeCandidate candidate{};
      ASSERT_EQ(queue.pop(candidate), !waiting.empty());
      if (waiting.empty()) continue;
      const auto first = std::min_element(waiting.begin(), waiting.end());
      EXPECT_EQ(std::make_pair(candidate.rank, candidate.place), *first);
      waiting.erase(first);
    }
  }
}

TEST(Utf8, ReplacesWhatIsNoCharacter) {
  EXPECT_EQ(to_valid_utf8("a\xE4\xBD\xA0"), "a\xE4\xBD\xA0");
  EXPECT_EQ(to_valid_utf8("\xE4\xBD"), "\uFFFD");  // one cut character
  EXPECT_EQ(to_valid_utf8("\xE4\xBD"
                          "b"),
            "\uFFFD"
            "b");                                                            // cut short by another
  EXPECT_EQ(to_valid_utf8("\xC0\xAF"), "\uFFFD\uFFFD");                      // overlong
  EXPECT_EQ(to_valid_utf8("\xED\xA0\x80"), "\uFFFD\uFFFD\uFFFD");            // a surrogate
  EXPECT_EQ(to_valid_utf8("\xF4\x90\x80\x80"), "\uFFFD\uFFFD\uFFFD\uFFFD");  // beyond U+10FFFF
}

TEST(Utf8, SettledBytesNeverChange) {
  std::mt19937 random(7);
  for (int round = 0; round < 2000; ++round) {
    const std::string bytes = random_text(random, "a\xC3\xA9\xE4\xBD\xA0\xF0\x9F\x98\x80\xFF", 9);
    const std::string whole = to_valid_utf8(bytes);
    for (size_t n = 0; n <= bytes.size(); ++n) {
      const size_t settled = utf8_settled_bytes(std::string_view(bytes).substr(0, n));
      EXPECT_GE(settled + 3, n);
      const std::string start = to_valid_utf8(std::string_view(bytes).substr(0, settled));
      EXPECT_TRUE(whole.starts_with(start));
      EXPECT_EQ(start + to_valid_utf8(std::string_view(bytes).substr(settled)), whole);
    }
  }
}

TEST(NormalForm, OrdersLongRunsOfMarks) {
  std::string text = "a", lower, upper;
  for (int i = 0; i < 200'000; ++i) {
    text += "\u0301\u0316";
    lower += "\u0316";
    upper += "\u0301";
  }
  EXPECT_EQ(normalize(text, NormalForm::kNfd), "a" + lower + upper);
}

TEST(NormalForm, LeavesNewerMarksAlone) {
  EXPECT_EQ(normalize("e\u0301\u0327", NormalForm::kNfc), "\u0229\u0301");
  // U+1AC1 has class 220 since Unicode 14: a starter to the package.
  EXPECT_EQ(normalize("e\u0301\u1AC1", NormalForm::kNfd), "e\u0301\u1AC1");
}

TEST(StandIns, KeepTheLengthAndAreSorted) {
  uint32_t last = 0x7FF;  // shorter characters are not looked up
  for (const StandIn& row : stand_ins()) {
    EXPECT_GT(row.first, last);
    EXPECT_GE(row.last, row.first);
    last = row.last;
    std::string a, b;
    append_utf8(a, row.first);
    append_utf8(b, row.character);
    EXPECT_EQ(a.size(), b.size());
    EXPECT_EQ(stand_in_of(row.character), row.character);
  }
}

TEST(Pattern, MatchesNewerLetters) {
  const Pattern letters = Pattern::from_regex("\\p{L}+", "here");
  std::vector<Span> matches;
  letters.find_all("a\U00031350 \U00031350b", matches);
  ASSERT_EQ(matches.size(), 2u);
  EXPECT_EQ(matches[0].end, 5u);
  EXPECT_EQ(matches[1].begin, 6u);
}

TEST(Pattern, TranslatesWhatRubyReadsOtherwise) {
  EXPECT_EQ(pcre2_from_oniguruma("a{1,3}+", ""), "(?:a{1,3})+");
  EXPECT_EQ(pcre2_from_oniguruma("漢{2}?", ""), "(?:漢{2})?");
  EXPECT_EQ(pcre2_from_oniguruma("(?:ab){,2}", ""), "(?:ab){0,2}");
  EXPECT_EQ(pcre2_from_oniguruma("(a[x-z]){2,}+b", ""), "(?:(a[x-z]){2,})+b");
  EXPECT_EQ(pcre2_from_oniguruma("a{,}{x", ""), "a\\{,}\\{x");
  EXPECT_EQ(pcre2_from_oniguruma("a++|b*?", ""), "a++|b*?");
}

}  // namespace
}  // namespace weft::runtime
