// The tree is built from yaml-cpp's events, so that aliases, tags and depth are refused before
// anything is expanded.
#include "planner/yaml_reader.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <sstream>
#include <unordered_set>

#include "runtime/base/text.h"

namespace weft::planner {
namespace {

Error error_at(std::string_view where, size_t line, size_t column, std::string_view what) {
  return input_error("{}:{}:{}: {}", where, line, column, what);
}

class TreeBuilder : public YAML::EventHandler {
 public:
  explicit TreeBuilder(const std::string& where) : where_(where) {}
  YamlNode root;

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    add(mark, "", anchor, YamlNode::Kind::null);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    throw at(mark, "aliases (*name) are not read");
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    if (wants_key()) return take_key(mark, tag, anchor, value);
    YamlNode& node = add(mark, tag, anchor, YamlNode::Kind::scalar);
    node.text = value;
    node.quoted = tag == "!";
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlNode::Kind::list);
  }
  void OnSequenceEnd() override { open_.pop_back(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(mark, tag, anchor, YamlNode::Kind::map);
  }
  void OnMapEnd() override { open_.pop_back(); }

 private:
  struct Open {
    YamlNode* node;
    bool has_key = false;  // a key was read and waits for its value
    YamlNode pending;      // carries that key and its place
    std::unordered_set<std::string> seen;
  };

  Error at(const YAML::Mark& mark, std::string_view what) const {
    return error_at(where_, static_cast<size_t>(mark.line) + 1,
                    static_cast<size_t>(mark.column) + 1, what);
  }

  void refuse(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) const {
    if (anchor != 0) throw at(mark, "anchors (&name) are not read");
    if (!tag.empty() && tag != "?" && tag != "!") throw at(mark, "tags (" + tag + ") are not read");
  }

  bool wants_key() const {
    return !open_.empty() && open_.back().node->kind == YamlNode::Kind::map &&
           !open_.back().has_key;
  }

  void take_key(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& key) {
    refuse(mark, tag, anchor);
    Open& map = open_.back();
    if (!map.seen.insert(key).second) throw at(mark, fmt::format("key \"{}\" is there twice", key));
    map.has_key = true;
    map.pending.key = key;
    map.pending.key_line = static_cast<size_t>(mark.line) + 1;
    map.pending.key_column = static_cast<size_t>(mark.column) + 1;
  }

  YamlNode& add(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                YamlNode::Kind kind) {
    refuse(mark, tag, anchor);
    if (wants_key()) throw at(mark, "a key must be a text");
    if (++n_values_ > kMostYamlValues)
      throw at(mark, fmt::format("more than {} values", kMostYamlValues));
    YamlNode* node = &root;
    if (!open_.empty()) {
      Open& parent = open_.back();
      node = &parent.node->items.emplace_back(std::move(parent.pending));
      parent.pending = YamlNode();
      parent.has_key = false;
    }
    node->kind = kind;
    node->line = static_cast<size_t>(mark.line) + 1;
    node->column = static_cast<size_t>(mark.column) + 1;
    return *node;
  }

  // Pointers into items stay valid: a list grows only while its last item is closed.
  void open(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
            YamlNode::Kind kind) {
    if (open_.size() >= kMostYamlDepth)
      throw at(mark, fmt::format("nested deeper than {} levels", kMostYamlDepth));
    YamlNode& node = add(mark, tag, anchor, kind);
    open_.push_back({.node = &node, .pending = {}, .seen = {}});
  }

  const std::string& where_;
  std::vector<Open> open_;
  size_t n_values_ = 0;
};

// yaml-cpp guesses the encoding and ends the file at certain control characters: only plain UTF-8
// text reaches it.
void check_characters(std::string_view text, const std::string& where) {
  if (!is_utf8(text)) throw input_error("{}: is not UTF-8", where);
  size_t line = 1;
  for (const char c : text) {
    if (c == '\n') ++line;
    const auto u = static_cast<unsigned char>(c);
    const bool control = (u < 0x20 && c != '\n' && c != '\r' && c != '\t') || u == 0x7f;
    if (control) throw error_at(where, line, 1, fmt::format("control character {:#04x}", u));
  }
}

std::string_view kind_name(YamlNode::Kind kind) {
  constexpr std::string_view names[] = {"nothing", "a single value", "a list", "a map"};
  return names[static_cast<size_t>(kind)];
}

}  // namespace

YamlNode parse_yaml(std::string_view text, const std::string& where) {
  if (text.size() > kMostYamlBytes)
    throw input_error("{}: has {} bytes; at most {} are read", where, text.size(), kMostYamlBytes);
  check_characters(text, where);
  // Without the last line's end: yaml-cpp takes a quote that is open there for closed.
  std::istringstream stream{std::string(text.substr(0, text.find_last_not_of(" \t\r\n") + 1))};
  TreeBuilder tree(where);
  try {
    YAML::Parser parser(stream);
    if (!parser.HandleNextDocument(tree)) throw input_error("{}: is empty", where);
    TreeBuilder second(where);
    if (parser.HandleNextDocument(second))
      throw error_at(where, std::max<size_t>(second.root.line, 1), 1, "a second document");
  } catch (const YAML::Exception& bad) {
    throw error_at(where, static_cast<size_t>(bad.mark.line) + 1,
                   static_cast<size_t>(bad.mark.column) + 1, "malformed YAML: " + bad.msg);
  }
  return std::move(tree.root);
}

Error YamlValue::error(std::string_view what) const {
  const std::string prefix = name_.empty() ? "" : name_ + ": ";
  return error_at(where_, node_->line, node_->column, prefix + std::string(what));
}

void YamlValue::keys(std::span<const std::string_view> known) const {
  if (node_->kind != YamlNode::Kind::map)
    throw error(fmt::format("must be a map, not {}", kind_name(node_->kind)));
  for (const YamlNode& value : node_->items) {
    if (std::find(known.begin(), known.end(), value.key) != known.end()) continue;
    const std::string in = name_.empty() ? "" : " in " + name_;
    throw error_at(
        where_, value.key_line, value.key_column,
        fmt::format("unknown key \"{}\"{}{}", value.key, in, did_you_mean(value.key, known)));
  }
}

const YamlNode* YamlValue::find(std::string_view key) const {
  for (const YamlNode& value : node_->items)
    if (value.key == key) return &value;
  return nullptr;
}

bool YamlValue::has(std::string_view key) const { return find(key) != nullptr; }

YamlValue YamlValue::at(std::string_view key) const {
  const YamlNode* value = find(key);
  if (value == nullptr) throw error(fmt::format("key \"{}\" is missing", key));
  return {*value, where_, std::string(key)};
}

std::vector<YamlValue> YamlValue::list(size_t most) const {
  if (node_->kind != YamlNode::Kind::list)
    throw error(fmt::format("must be a list, not {}", kind_name(node_->kind)));
  if (node_->items.size() > most)
    throw error(fmt::format("has {} items; at most {} are read", node_->items.size(), most));
  std::vector<YamlValue> values;
  values.reserve(node_->items.size());
  for (const YamlNode& item : node_->items)
    values.emplace_back(item, where_, fmt::format("{}[{}]", name_, values.size()));
  return values;
}

const std::string& YamlValue::plain() const {
  if (node_->kind != YamlNode::Kind::scalar)
    throw error(fmt::format("must be a single value, not {}", kind_name(node_->kind)));
  return node_->text;
}

size_t YamlValue::count(size_t least, size_t most) const {
  const std::string& text = plain();
  size_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, bad] = std::from_chars(text.data(), end, value);
  const bool whole = !node_->quoted && bad == std::errc() && stop == end;
  if (!whole || value < least || value > most)
    throw error(fmt::format("\"{}\" is not a whole number from {} to {}", text, least, most));
  return value;
}

void YamlValue::only(size_t version) const {
  const size_t found = count(0, size_t{1} << 30);
  if (found != version)
    throw error(fmt::format("{} is not read; this weft reads {}", found, version));
}

double YamlValue::number() const {
  const std::string& text = plain();
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, bad] = std::from_chars(text.data(), end, value);
  if (node_->quoted || bad != std::errc() || stop != end || !std::isfinite(value))
    throw error(fmt::format("\"{}\" is not a finite number", text));
  return value;
}

bool YamlValue::flag() const {
  const std::string& text = plain();
  if (node_->quoted || (text != "true" && text != "false"))
    throw error(fmt::format("\"{}\" is neither true nor false", text));
  return text == "true";
}

std::string YamlValue::text() const { return plain(); }

size_t YamlValue::choice(std::span<const std::string_view> names) const {
  const std::string& text = plain();
  const auto found = std::find(names.begin(), names.end(), text);
  if (found == names.end())
    throw error(fmt::format("\"{}\" is none of {}{}", text, fmt::join(names, ", "),
                            did_you_mean(text, names)));
  return static_cast<size_t>(found - names.begin());
}

std::string yaml_text(std::string_view text) {
  constexpr std::string_view letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ";
  constexpr std::string_view inner =
      "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-/";
  constexpr std::string_view words[] = {"null", "Null", "NULL", "true", "false"};
  const bool plain = !text.empty() && letters.find(text[0]) != letters.npos &&
                     text.find_first_not_of(inner) == text.npos &&
                     std::find(std::begin(words), std::end(words), text) == std::end(words);
  if (plain) return std::string(text);
  // JSON's escapes are YAML's; DEL is a control character to the reader.
  std::string quoted = nlohmann::json(text).dump();
  for (size_t i; (i = quoted.find('\x7f')) != quoted.npos;) quoted.replace(i, 1, "\\u007f");
  return quoted;
}

}  // namespace weft::planner
