// The "model" of a tokenizer.json: vocabulary, merges and what to do with unknown characters.
#include "runtime/tokenizer/bpe.h"
#include "runtime/tokenizer/utf8.h"

namespace weft::runtime {
namespace {

constexpr size_t kMostMerges = size_t{1} << 24;

struct MergeParts {
  std::string_view left, right;
};

// "a b" or ["a", "b"].
MergeParts parts_of(const nlohmann::json& merge, const JsonNode& merges, size_t i) {
  if (merge.is_string()) {
    const std::string_view text = merge.get_ref<const std::string&>();
    const size_t space = text.find(' ');
    if (space == text.npos || text.find(' ', space + 1) != text.npos) {
      throw input_error("{}[{}]: \"{}\" is not two tokens with a space between", merges.where(), i,
                        text);
    }
    return {text.substr(0, space), text.substr(space + 1)};
  }
  if (!merge.is_array() || merge.size() != 2 || !merge[0].is_string() || !merge[1].is_string()) {
    throw input_error("{}[{}]: a merge is \"a b\" or [\"a\", \"b\"]", merges.where(), i);
  }
  return {merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>()};
}

void refuse_text(const JsonNode& model, const std::string& key) {
  const auto node = model.find(key);
  if (node && !node->text().empty()) throw node->error("{} is not supported", key);
}

}  // namespace

void Bpe::read_vocabulary(const JsonNode& model) {
  const JsonNode vocabulary = model.at("vocab");
  vocabulary.expect_object();
  for (const auto& [token, id] : vocabulary.value().items()) {
    const bool fits = id.is_number_unsigned() && id.get<uint64_t>() <= uint64_t{kMostTokenId};
    if (!fits) {
      throw vocabulary.error("token \"{}\": its id is not within 0..{}", token, kMostTokenId);
    }
    const auto number = id.get<int32_t>();
    if (!vocabulary_.add(token, number)) {
      throw vocabulary.error("tokens \"{}\" and \"{}\" both have id {}",
                             *vocabulary_.token_of(number), token, number);
    }
    if (!token.empty() && utf8_step(token, 0).bytes == token.size()) {
      characters_.emplace(utf8_step(token, 0).code, number);
    }
  }
  bytes_.resize(256);
  for (unsigned byte = 0; byte < 256; ++byte) {
    bytes_[byte] = vocabulary_.id_of(fmt::format("<0x{:02X}>", byte));
  }
}

void Bpe::read_merges(const JsonNode& model) {
  const JsonNode merges = model.at("merges");
  const nlohmann::json& list = merges.value();
  if (!list.is_array()) throw merges.error("expected a list, not {}", list.type_name());
  if (list.size() > kMostMerges) {
    throw merges.error("{} entries; at most {} are read", list.size(), kMostMerges);
  }
  merges_ = MergeTable(list.size());
  std::string whole;
  for (size_t i = 0; i < list.size(); ++i) {
    // The first line of a merges.txt, which some converters left in.
    if (list[i].is_string() && list[i].get_ref<const std::string&>().starts_with("#version")) {
      continue;
    }
    const MergeParts parts = parts_of(list[i], merges, i);
    whole.assign(parts.left).append(parts.right);
    const auto id_of = [&](std::string_view token) {
      const int32_t id = vocabulary_.id_of(token);
      if (id >= 0) return id;
      throw input_error("{}[{}]: token \"{}\" is not in model.vocab", merges.where(), i, token);
    };
    const int32_t left = id_of(parts.left), right = id_of(parts.right);
    const auto rank = static_cast<uint32_t>(merged_ids_.size());
    merged_ids_.push_back(id_of(whole));
    merges_.set(left, right, {rank, merged_ids_.back()});
  }
}

Bpe Bpe::from_json(const JsonNode& model) {
  const auto kind = model.find("type");
  if (kind && kind->text() != "BPE") {
    throw kind->error(
        "the tokenizer is {}; weft reads BPE (byte-level, or SentencePiece-style "
        "with byte fallback)",
        kind->text());
  }
  if (!kind && !model.find("merges")) {
    throw model.error("neither \"type\" nor \"merges\": not a BPE model");
  }
  const auto dropout = model.find("dropout");
  if (dropout && !(dropout->value().is_number() && dropout->value().get<double>() == 0)) {
    throw dropout->error("a tokenizer with dropout gives random tokens; it is not supported");
  }
  refuse_text(model, "continuing_subword_prefix");
  refuse_text(model, "end_of_word_suffix");
  Bpe bpe;
  bpe.read_vocabulary(model);
  bpe.read_merges(model);
  if (const auto unknown = model.find("unk_token")) bpe.unknown_ = unknown->text();
  bpe.unknown_id_ = bpe.vocabulary_.id_of(bpe.unknown_);
  bpe.fuses_unknown_ = model.flag("fuse_unk", false);
  bpe.byte_fallback_ = model.flag("byte_fallback", false);
  bpe.ignores_merges_ = model.flag("ignore_merges", false);
  return bpe;
}

}  // namespace weft::runtime
