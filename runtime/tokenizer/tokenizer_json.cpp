// Access by key and by kind, with the path to each value for its errors.
#include "runtime/tokenizer/tokenizer_json.h"

#include "runtime/json_text.h"

namespace weft::runtime {
namespace {

constexpr size_t kMostItems = size_t{1} << 18;  // of a list that is read node by node

}  // namespace

nlohmann::json parse_tokenizer_json(std::string_view text, const std::string& where) {
  if (text.size() > kMostJsonBytes) {
    throw input_error("{}: {} bytes; a tokenizer.json has at most {}", where, text.size(),
                      kMostJsonBytes);
  }
  return parse_json(text, where, {.depth = 64, .values = size_t{1} << 24});
}

void JsonNode::expect_object() const {
  if (!value_->is_object()) throw error("expected an object, not {}", value_->type_name());
}

JsonNode JsonNode::at(const std::string& key) const {
  expect_object();
  const auto found = value_->find(key);
  if (found == value_->end()) throw error("\"{}\" is missing", key);
  return {*found, file_, path_.empty() ? key : path_ + "." + key};
}

std::optional<JsonNode> JsonNode::find(const std::string& key) const {
  expect_object();
  const auto found = value_->find(key);
  if (found == value_->end() || found->is_null()) return std::nullopt;
  return at(key);
}

bool JsonNode::flag(const std::string& key, bool fallback) const {
  const auto node = find(key);
  if (!node) return fallback;
  if (!node->value().is_boolean()) {
    throw node->error("expected true or false, not {}", node->value().type_name());
  }
  return node->value().get<bool>();
}

const std::string& JsonNode::text() const {
  if (!value_->is_string()) throw error("expected a string, not {}", value_->type_name());
  return value_->get_ref<const std::string&>();
}

int32_t JsonNode::token_id() const {
  if (!value_->is_number_integer()) throw error("expected a token id, not {}", value_->type_name());
  const bool large =
      value_->is_number_unsigned() && value_->get<uint64_t>() > static_cast<uint64_t>(kMostTokenId);
  if (large || value_->get<int64_t>() < 0) {
    throw error("token id {} is not within 0..{}", value_->dump(), kMostTokenId);
  }
  return static_cast<int32_t>(value_->get<int64_t>());
}

std::vector<JsonNode> JsonNode::items() const {
  if (!value_->is_array()) throw error("expected a list, not {}", value_->type_name());
  if (value_->size() > kMostItems) {
    throw error("{} entries; at most {} are read", value_->size(), kMostItems);
  }
  std::vector<JsonNode> nodes;
  for (size_t i = 0; i < value_->size(); ++i) {
    nodes.emplace_back((*value_)[i], file_, path_ + "[" + std::to_string(i) + "]");
  }
  return nodes;
}

}  // namespace weft::runtime
