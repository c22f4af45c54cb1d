// A tokenizer.json that is wrong, hostile or of a kind that is not read: an Error that names the
// file, the place and the value.
#include <gtest/gtest.h>

#include <random>

#include "runtime/base/error.h"
#include "runtime/tokenizer.h"
#include "tests/support/tokenizer_files.h"

namespace weft::runtime {
namespace {

using nlohmann::json;

json small() {
  return json::parse(R"({
    "version": "1.0", "added_tokens": [], "normalizer": null, "pre_tokenizer": null,
    "post_processor": null, "decoder": null,
    "model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b"]}})");
}

json added(int64_t id, const std::string& content) {
  return {{"id", id}, {"content", content}, {"special", true}, {"normalized", false}};
}

std::string error_of(const std::string& text) {
  try {
    Tokenizer::from_json(text, "t.json");
  } catch (const Error& e) {
    return e.what();
  }
  return "no error";
}

// The small tokenizer with the value at a JSON pointer replaced.
std::string error_with(const std::string& pointer, const json& value) {
  json document = small();
  document[json::json_pointer(pointer)] = value;
  return error_of(document.dump());
}

#define EXPECT_SAYS(text, part) \
  EXPECT_NE((text).find(part), std::string::npos) << "the error is: " << (text)

TEST(TokenizerErrors, TheSmallTokenizerIsRead) {
  const auto tokenizer = Tokenizer::from_json(small().dump(), "t.json");
  EXPECT_EQ(tokenizer.encode("aab"), (std::vector<int32_t>{0, 2}));
  EXPECT_EQ(tokenizer.decode({0, 2}), "a ab");
}

TEST(TokenizerErrors, NameTheFile) {
  try {
    Tokenizer::from_file("/no/such/tokenizer.json");
    FAIL() << "read a file that is not there";
  } catch (const Error& e) {
    EXPECT_SAYS(std::string(e.what()), "/no/such/tokenizer.json");
  }
}

TEST(TokenizerErrors, NotATokenizer) {
  EXPECT_SAYS(error_of(""), "t.json");
  EXPECT_SAYS(error_of("{\"model\": "), "t.json");
  EXPECT_SAYS(error_of("[1, 2]"), "t.json: expected an object, not array");
  EXPECT_SAYS(error_of("{}"), "t.json: \"model\" is missing");
  EXPECT_SAYS(error_with("/version", "2.0"), "t.json: version");
  EXPECT_SAYS(error_with("/model", 7), "t.json: model: expected an object");
  std::string deep;
  for (int i = 0; i < 100'000; ++i) deep += "[";
  EXPECT_SAYS(error_of(deep), "deep");
}

TEST(TokenizerErrors, OtherModels) {
  for (const std::string kind : {"WordPiece", "Unigram", "WordLevel", "Other"}) {
    EXPECT_SAYS(error_with("/model/type", kind),
                "t.json: model.type: the tokenizer is " + kind + "; weft reads BPE");
  }
  EXPECT_SAYS(error_with("/model/dropout", 0.1), "model.dropout");
  EXPECT_SAYS(error_with("/model/end_of_word_suffix", "</w>"), "model.end_of_word_suffix");
  EXPECT_SAYS(error_with("/model/continuing_subword_prefix", "##"),
              "model.continuing_subword_prefix");
  EXPECT_EQ(error_with("/model/dropout", 0.0), "no error");
}

TEST(TokenizerErrors, Vocabulary) {
  EXPECT_SAYS(error_with("/model/vocab", json::array()), "model.vocab: expected an object");
  EXPECT_SAYS(error_with("/model/vocab/b", 0), "both have id 0");
  EXPECT_SAYS(error_with("/model/vocab/b", int64_t{1} << 40), "token \"b\"");
  EXPECT_SAYS(error_with("/model/vocab/b", -1), "token \"b\"");
  EXPECT_SAYS(error_with("/model/vocab/b", 1.5), "token \"b\"");
  EXPECT_SAYS(error_with("/model/vocab/b", "1"), "token \"b\"");
}

TEST(TokenizerErrors, Merges) {
  EXPECT_SAYS(error_with("/model/merges", "a b"), "model.merges: expected a list");
  EXPECT_SAYS(error_with("/model/merges", json::array({"a b", "a c"})),
              "t.json: model.merges[1]: token \"c\" is not in model.vocab");
  EXPECT_SAYS(error_with("/model/merges", json::array({"b a"})), "model.merges[0]: token \"ba\"");
  EXPECT_SAYS(error_with("/model/merges", json::array({"ab"})), "model.merges[0]");
  EXPECT_SAYS(error_with("/model/merges", json::array({"a b a"})), "model.merges[0]");
  EXPECT_SAYS(error_with("/model/merges/0", json::array({"a", "b", "a"})), "model.merges[0]");
  EXPECT_SAYS(error_with("/model/merges/0", json::array({"a", 1})), "model.merges[0]");
  EXPECT_EQ(error_with("/model/merges/0", json::array({"a", "b"})), "no error");
  json document = small();
  document["model"].erase("merges");
  EXPECT_SAYS(error_of(document.dump()), "t.json: model: \"merges\" is missing");
}

TEST(TokenizerErrors, AddedTokens) {
  EXPECT_EQ(error_with("/added_tokens", json::array({added(3, "<x>"), added(4, "<y>")})),
            "no error");
  EXPECT_SAYS(error_with("/added_tokens", json::array({added(3, "<x>"), added(3, "<y>")})),
              "added_tokens[1]");
  EXPECT_SAYS(error_with("/added_tokens", json::array({added(3, "<x>"), added(4, "<x>")})),
              "listed twice");
  EXPECT_SAYS(error_with("/added_tokens", json::array({added(2, "<x>")})), "added_tokens[0]");
  EXPECT_SAYS(error_with("/added_tokens", json::array({added(9, "<x>")})), "the next free id is 3");
  EXPECT_SAYS(error_with("/added_tokens", json::array({added(3, "a")})), "model.vocab gives it 0");
  EXPECT_SAYS(error_with("/added_tokens", json::array({added(int64_t{1} << 40, "<x>")})),
              "added_tokens[0].id");
  EXPECT_SAYS(error_with("/added_tokens", json::array({added(-1, "<x>")})), "added_tokens[0].id");
  EXPECT_SAYS(error_with("/added_tokens", json::array({added(3, "")})), "added_tokens[0]");
  EXPECT_SAYS(error_with("/added_tokens", json::array({{{"id", 3}}})), "\"content\" is missing");
  json flag = added(3, "<x>");
  flag["lstrip"] = "yes";
  EXPECT_SAYS(error_with("/added_tokens", json::array({flag})), "added_tokens[0].lstrip");
}

TEST(TokenizerErrors, PartsThatAreNotRead) {
  const auto kind = [](const std::string& name) { return json{{"type", name}}; };
  EXPECT_SAYS(error_with("/normalizer", kind("Nmt")), "t.json: normalizer: normalizer \"Nmt\"");
  EXPECT_SAYS(error_with("/pre_tokenizer", kind("BertPreTokenizer")), "\"BertPreTokenizer\"");
  EXPECT_SAYS(error_with("/decoder", kind("WordPiece")), "decoder \"WordPiece\"");
  EXPECT_SAYS(error_with("/post_processor", kind("Other")), "post_processor \"Other\"");
  EXPECT_SAYS(error_with("/normalizer", json::object()), "normalizer: \"type\" is missing");
  const json nested = {{"type", "Sequence"}, {"normalizers", {kind("NFC"), kind("Nmt")}}};
  EXPECT_SAYS(error_with("/normalizer", nested), "normalizer.normalizers[1]");
  const json fused = {{"type", "Sequence"}, {"decoders", {kind("Fuse"), kind("ByteFallback")}}};
  EXPECT_SAYS(error_with("/decoder", fused), "decoder.decoders[1]");
}

TEST(TokenizerErrors, Patterns) {
  const auto split = [](const std::string& regex) {
    return json{{"type", "Split"}, {"pattern", {{"Regex", regex}}}, {"behavior", "Isolated"}};
  };
  for (const char* regex : {"(", "[a", "a)", "[a&&b]", "[a[b]]", "\\h", "[^\\S]", "\\p{Han}",
                            "\\pL", "(?m:a)", "a(?i)b", "\\k<a>", "\\", "a{3,2}", "(?<=a+)b"}) {
    EXPECT_SAYS(error_with("/pre_tokenizer", split(regex)), "t.json: pre_tokenizer.pattern.Regex");
  }
  json unknown = split("a");
  unknown["behavior"] = "Sideways";
  EXPECT_SAYS(error_with("/pre_tokenizer", unknown), "pre_tokenizer.behavior");
  json literal = split("a");
  literal["pattern"] = {{"String", ""}};
  EXPECT_SAYS(error_with("/pre_tokenizer", literal), "pre_tokenizer.pattern.String");
  const json empty = {{"type", "Replace"}, {"pattern", {{"Regex", "x*"}}}, {"content", "y"}};
  EXPECT_SAYS(error_with("/normalizer", empty), "matches an empty text");
}

// A pattern that explodes ends with an Error, not with other tokens.
TEST(TokenizerErrors, PatternsThatExplode) {
  json document = small();
  document["pre_tokenizer"] = {
      {"type", "Split"}, {"pattern", {{"Regex", "(?:a|a)+b$"}}}, {"behavior", "Isolated"}};
  const auto tokenizer = Tokenizer::from_json(document.dump(), "t.json");
  EXPECT_THROW(tokenizer.encode(std::string(64, 'a') + "cb"), Error);
}

TEST(TokenizerErrors, PostProcessors) {
  json form = {{"type", "TemplateProcessing"},
               {"single",
                {{{"SpecialToken", {{"id", "<x>"}, {"type_id", 0}}}},
                 {{"Sequence", {{"id", "A"}, {"type_id", 0}}}}}},
               {"special_tokens", {{"<x>", {{"id", "<x>"}, {"ids", {0}}, {"tokens", {"a"}}}}}}};
  EXPECT_EQ(error_with("/post_processor", form), "no error");
  json bad = form;
  bad["special_tokens"]["<x>"]["ids"] = {77};
  EXPECT_SAYS(error_with("/post_processor", bad), "id 77");
  bad["special_tokens"] = json::object();
  EXPECT_SAYS(error_with("/post_processor", bad), "\"<x>\" is not in special_tokens");
  bad = form;
  bad["single"][1]["Sequence"]["id"] = "B";
  EXPECT_SAYS(error_with("/post_processor", bad), "sequence \"B\"");
}

TEST(TokenizerErrors, UnknownTokenOutsideTheVocabulary) {
  json document = small();
  document["model"]["unk_token"] = "<unk>";
  const auto tokenizer = Tokenizer::from_json(document.dump(), "t.json");
  EXPECT_EQ(tokenizer.encode("ab"), std::vector<int32_t>{2});
  EXPECT_THROW(tokenizer.encode("abc"), Error);
}

// Whatever a damaged file holds, it is read or refused with an Error.
TEST(TokenizerErrors, DamagedFiles) {
  for (const std::string family : {"deepseek-coder", "llama2"}) {
    json document = test::tokenizer_data(family + "/tokenizer.json");
    document["model"]["vocab"] = {{"a", 0}, {"b", 1}, {"ab", 2}, {"<s>", 3}, {"<unk>", 4}};
    document["model"]["merges"] = json::array({"a b"});
    document["added_tokens"] = json::array({added(5, "<x>")});
    const std::string whole = document.dump();
    std::mt19937 random(3);
    size_t n_errors = 0;
    for (int round = 0; round < 2000; ++round) {
      std::string text = whole;
      for (size_t n = 1 + random() % 3; n > 0; --n) {
        const char with = "0\"[]{},:x\xff"[random() % 10];
        text[random() % text.size()] = with;
      }
      n_errors += error_of(text) != "no error";
    }
    EXPECT_GT(n_errors, 1000u);
  }
}

}  // namespace
}  // namespace weft::runtime
