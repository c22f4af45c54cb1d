// A model's facts as YAML, version 1.
#include <fmt/format.h>

#include <algorithm>

#include "planner/model_fields.h"
#include "planner/model_spec.h"
#include "planner/yaml_reader.h"
#include "runtime/base/file.h"

namespace weft::planner {
namespace {

constexpr size_t kMostCount = size_t{1} << 40;  // problems() has each field's own bound

std::vector<std::string_view> fact_keys() {
  std::vector<std::string_view> keys = {"version", "aliases"};
  const ModelSpec spec;
  for_each_fact(spec, [&](const char* key, const auto&) { keys.push_back(key); });
  return keys;
}

std::vector<std::string_view> rope_keys() {
  std::vector<std::string_view> keys;
  const RopeSpec rope;
  for_each_rope_field(rope, [&](const char* key, const auto&) { keys.push_back(key); });
  return keys;
}

void read_fact(const YamlValue& from, size_t& to) { to = from.count(0, kMostCount); }
void read_fact(const YamlValue& from, double& to) { to = from.number(); }
void read_fact(const YamlValue& from, bool& to) { to = from.flag(); }
void read_fact(const YamlValue& from, std::string& to) { to = from.text(); }
void read_fact(const YamlValue& from, DType& to) {
  to = kFloatDTypes[from.choice(kFloatDTypeNames)];
}
void read_fact(const YamlValue& from, RopeScaling& to) {
  to = static_cast<RopeScaling>(from.choice(kScalingNames));
}
void read_fact(const YamlValue& from, RopeSpec& to) {
  YamlValue map = from;
  map.keys(rope_keys());
  map.at("theta");  // must be there: no value suits all models
  for_each_rope_field(to, [&](const char* key, auto& value) {
    if (map.has(key)) read_fact(map.at(key), value);
  });
}

// A broken rule begins with its field's name: "n_heads 7 is …", "rope.theta 0 is …".
Error broken_rules(const YamlValue& map, const std::vector<std::string>& found) {
  const std::string& first = found.front();
  const std::string field = first.substr(0, first.find_first_of(" .,"));
  const std::string all = fmt::format("{}", fmt::join(found, "; "));
  return map.has(field) ? map.at(field).error(all) : map.error(all);
}

std::string fact_text(size_t value) { return fmt::format("{}", value); }
std::string fact_text(double value) { return fmt::format("{}", value); }
std::string fact_text(bool value) { return value ? "true" : "false"; }
std::string fact_text(const std::string& value) { return yaml_text(value); }
std::string fact_text(DType value) { return std::string(dtype_name(value)); }
std::string fact_text(RopeScaling value) {
  return std::string(kScalingNames[static_cast<size_t>(value)]);
}
using FieldTexts = std::vector<std::pair<std::string_view, std::string>>;

FieldTexts rope_texts(const RopeSpec& rope) {
  FieldTexts texts;
  for_each_rope_field(
      rope, [&](const char* key, const auto& value) { texts.emplace_back(key, fact_text(value)); });
  return texts;
}

// A map of its own: the fields that differ from the defaults, and theta.
std::string fact_text(const RopeSpec& rope) {
  const FieldTexts usual = rope_texts(RopeSpec());
  const FieldTexts texts = rope_texts(rope);
  std::string text;
  for (size_t i = 0; i < texts.size(); ++i)
    if (texts[i].first == "theta" || texts[i] != usual[i])
      text += fmt::format("\n  {}: {}", texts[i].first, texts[i].second);
  return text;
}

FieldTexts fact_texts(const ModelSpec& spec) {
  FieldTexts texts;
  for_each_fact(
      spec, [&](const char* key, const auto& value) { texts.emplace_back(key, fact_text(value)); });
  return texts;
}

bool is_required(std::string_view key) {
  return std::find(std::begin(kRequiredFacts), std::end(kRequiredFacts), key) !=
         std::end(kRequiredFacts);
}

}  // namespace

ModelSpec parse_model_yaml(std::string_view text, const std::string& where) {
  const YamlNode root = parse_yaml(text, where);
  YamlValue map(root, where, "");
  map.keys(fact_keys());
  map.at("version").only(1);
  for (const std::string_view key : kRequiredFacts) map.at(key);
  ModelSpec spec;
  for_each_fact(spec, [&](const char* key, auto& value) {
    if (map.has(key)) read_fact(map.at(key), value);
  });
  if (map.has("aliases"))
    for (const YamlValue& alias : map.at("aliases").list(64)) spec.aliases.push_back(alias.text());
  const std::vector<std::string> found = problems(spec);
  if (!found.empty()) throw broken_rules(map, found);
  return spec;
}

ModelSpec read_model_yaml(const std::string& path) {
  return parse_model_yaml(read_text(path, kMostYamlBytes), path);
}

std::string to_yaml(const ModelSpec& spec) {
  const FieldTexts texts = fact_texts(spec);
  const FieldTexts usual = fact_texts(ModelSpec());
  std::string text = "version: 1\n";
  for (size_t i = 0; i < texts.size(); ++i) {
    const auto& [key, value] = texts[i];
    if (!is_required(key) && texts[i] == usual[i]) continue;
    text += fmt::format("{}:{}{}\n", key, value.starts_with('\n') ? "" : " ", value);
  }
  if (!spec.aliases.empty()) text += "aliases:\n";
  for (const std::string& alias : spec.aliases) text += fmt::format("  - {}\n", yaml_text(alias));
  return text;
}

}  // namespace weft::planner
