// Strict reading of small YAML files: a document becomes a tree with line and column at every
// value. No anchors, aliases, tags or second document; no key twice; size and depth are bounded.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/base/error.h"

namespace weft::planner {

inline constexpr size_t kMostYamlBytes = size_t{16} << 20;
inline constexpr size_t kMostYamlValues = 3'000'000;
inline constexpr size_t kMostYamlDepth = 16;

struct YamlNode {
  enum class Kind { null, scalar, list, map };
  Kind kind = Kind::null;
  std::string text;             // scalar
  bool quoted = false;          // scalar written as a text
  std::vector<YamlNode> items;  // of a list, or the values of a map in the file's order
  size_t line = 0;              // both count from 1
  size_t column = 0;
  std::string key;  // of a map's value
  size_t key_line = 0;
  size_t key_column = 0;
};

// One document. `where` names the file in errors. Throws Error "where:line:column: …".
YamlNode parse_yaml(std::string_view text, const std::string& where);

// A value with the name of its file and of itself, read as what it must be. The tree and the file's
// name outlive it. Every function throws Error, as in
// "plan.yaml:3:9: tp: \"two\" is not a whole number from 1 to 1000000".
class YamlValue {
 public:
  YamlValue(const YamlNode& node, std::string_view where, std::string name)
      : node_(&node), where_(where), name_(std::move(name)) {}

  // Throws where it is no map or has a key that is none of these.
  void keys(std::span<const std::string_view> known) const;
  YamlValue at(std::string_view key) const;  // throws where the map lacks it
  bool has(std::string_view key) const;
  std::vector<YamlValue> list(size_t most) const;

  size_t count(size_t least, size_t most) const;
  void only(size_t version) const;  // throws where the value is another version
  double number() const;            // finite
  bool flag() const;                // true or false
  std::string text() const;
  size_t choice(std::span<const std::string_view> names) const;  // index of the name

  // An Error at this value: "where:line:column: name: what".
  Error error(std::string_view what) const;

 private:
  const YamlNode* find(std::string_view key) const;
  const std::string& plain() const;

  const YamlNode* node_;
  std::string_view where_;
  std::string name_;
};

// A text as a YAML scalar: as it is where that is plainly a text, else in double quotes.
std::string yaml_text(std::string_view text);

}  // namespace weft::planner
