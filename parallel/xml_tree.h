// Strict reading of small XML files: a document becomes a tree with a line at every element. No
// entities, no declarations of its own; size, depth and numbers are bounded. (expat does the
// parsing.)
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace weft::parallel {

inline constexpr size_t kMostXmlBytes = size_t{32} << 20;
inline constexpr size_t kMostXmlElements = 400'000;
inline constexpr size_t kMostXmlDepth = 100;

struct XmlElement {
  std::string name;
  std::vector<std::pair<std::string, std::string>> attributes;
  std::vector<XmlElement> children;
  std::string text;  // all of it, joined
  size_t line = 0;   // counts from 1

  const std::string* find(std::string_view attribute) const;  // null where there is none
  std::string_view get(std::string_view attribute) const;     // empty where there is none
};

// The root element. `where` names the file in errors. Throws Error "where:line:column: …".
XmlElement parse_xml(std::string_view text, const std::string& where);

}  // namespace weft::parallel
