// Every kind of post-processor as one list: ids to put around the text, and the text's place.
#include "runtime/tokenizer/post_processor.h"

namespace weft::runtime {
namespace {

constexpr size_t kMostForm = 4096;

void append_special(const JsonNode& node, const JsonNode& item, std::vector<int32_t>& form) {
  const std::string& name = item.at("id").text();
  const auto token = node.at("special_tokens").find(name);
  if (!token) throw item.error("\"{}\" is not in special_tokens", name);
  for (const JsonNode& id : token->at("ids").items()) form.push_back(id.token_id());
}

std::vector<int32_t> template_form(const JsonNode& node) {
  std::vector<int32_t> form;
  for (const JsonNode& item : node.at("single").items()) {
    if (const auto special = item.find("SpecialToken")) {
      append_special(node, *special, form);
      continue;
    }
    const JsonNode name = item.at("Sequence").at("id");
    if (name.text() != "A") throw name.error("sequence \"{}\" in a single text", name.text());
    form.push_back(PostProcessor::kText);
  }
  return form;
}

// ["</s>", 2]
int32_t pair_id(const JsonNode& pair) {
  const auto parts = pair.items();
  if (parts.size() != 2) throw pair.error("expected a token and its id");
  return parts[1].token_id();
}

}  // namespace

PostProcessor PostProcessor::from_json(const JsonNode& node) {
  PostProcessor processor;
  processor.add(node);
  return processor;
}

void PostProcessor::add(const JsonNode& node) {
  const std::string& kind = node.at("type").text();
  if (kind == "Sequence") {
    for (const JsonNode& item : node.at("processors").items()) add(item);
  } else if (kind == "TemplateProcessing") {
    wrap(template_form(node));
  } else if (kind == "RobertaProcessing" || kind == "BertProcessing") {
    wrap({pair_id(node.at("cls")), kText, pair_id(node.at("sep"))});
  } else if (kind != "ByteLevel") {  // which moves offsets, not ids
    throw node.error(
        "post_processor \"{}\" is not supported; read are TemplateProcessing, ByteLevel, "
        "RobertaProcessing, BertProcessing and Sequence",
        kind);
  }
  if (form_.size() > kMostForm) throw node.error("more than {} special tokens", kMostForm);
}

// A processor works on what the one before it made.
void PostProcessor::wrap(const std::vector<int32_t>& form) {
  std::vector<int32_t> wrapped;
  for (int32_t id : form) {
    if (id == kText) wrapped.insert(wrapped.end(), form_.begin(), form_.end());
    if (id != kText) wrapped.push_back(id);
    if (wrapped.size() > kMostForm) break;
  }
  form_ = std::move(wrapped);
}

std::vector<int32_t> PostProcessor::apply(std::vector<int32_t> ids) const {
  if (form_.size() == 1 && form_[0] == kText) return ids;
  std::vector<int32_t> result;
  result.reserve(ids.size() + form_.size());
  for (int32_t id : form_) {
    if (id == kText) result.insert(result.end(), ids.begin(), ids.end());
    if (id != kText) result.push_back(id);
  }
  return result;
}

}  // namespace weft::runtime
