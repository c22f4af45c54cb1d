// A tree of elements from expat's events. Nothing is thrown through expat: the first problem stops
// the parser and is thrown after it.
#include "parallel/xml_tree.h"

#include <expat.h>

#include <algorithm>
#include <memory>
#include <optional>

#include "runtime/base/error.h"

namespace weft::parallel {
namespace {

using Parser = std::unique_ptr<XML_ParserStruct, decltype(&XML_ParserFree)>;

struct Reading {
  XML_Parser parser = nullptr;
  XmlElement document;            // its only child is the root
  std::vector<XmlElement*> open;  // parents stay where they are while a child is open
  size_t n_elements = 0;
  std::string problem;

  void stop(std::string why) {
    if (!problem.empty()) return;
    problem = std::move(why);
    XML_StopParser(parser, XML_FALSE);
  }
};

Reading& reading(void* data) { return *static_cast<Reading*>(data); }

void XMLCALL begin_element(void* data, const XML_Char* name, const XML_Char** attributes) {
  Reading& r = reading(data);
  if (r.open.size() > kMostXmlDepth)
    return r.stop(fmt::format("elements lie more than {} deep", kMostXmlDepth));
  if (++r.n_elements > kMostXmlElements)
    return r.stop(fmt::format("more than {} elements", kMostXmlElements));
  XmlElement& element = r.open.back()->children.emplace_back();
  element.name = name;
  element.line = XML_GetCurrentLineNumber(r.parser);
  for (; attributes[0] != nullptr; attributes += 2)
    element.attributes.emplace_back(attributes[0], attributes[1]);
  r.open.push_back(&element);
}

// expat may still report the end of an element whose beginning stopped it.
void XMLCALL end_element(void* data, const XML_Char*) {
  if (reading(data).problem.empty()) reading(data).open.pop_back();
}

void XMLCALL add_text(void* data, const XML_Char* text, int n) {
  if (reading(data).problem.empty())
    reading(data).open.back()->text.append(text, static_cast<size_t>(n));
}

// hwloc names an outer DTD, which is not read; what stands inside the file could define entities.
void XMLCALL begin_doctype(void* data, const XML_Char*, const XML_Char*, const XML_Char*,
                           int has_internal_subset) {
  if (has_internal_subset) reading(data).stop("declarations within the document are not read");
}

void XMLCALL skipped_entity(void* data, const XML_Char* name, int) {
  reading(data).stop(
      fmt::format("entity \"{}\" is not read", std::string_view(name).substr(0, 40)));
}

}  // namespace

const std::string* XmlElement::find(std::string_view attribute) const {
  const auto found = std::find_if(attributes.begin(), attributes.end(),
                                  [&](const auto& pair) { return pair.first == attribute; });
  return found == attributes.end() ? nullptr : &found->second;
}

std::string_view XmlElement::get(std::string_view attribute) const {
  const std::string* value = find(attribute);
  return value == nullptr ? std::string_view() : std::string_view(*value);
}

XmlElement parse_xml(std::string_view text, const std::string& where) {
  if (text.size() > kMostXmlBytes)
    throw input_error("{} has {} bytes; at most {} are read", where, text.size(), kMostXmlBytes);
  const Parser parser(XML_ParserCreate(nullptr), XML_ParserFree);
  if (parser == nullptr) throw run_error("no memory to read {}", where);
  Reading r;
  r.parser = parser.get();
  r.open.push_back(&r.document);
  XML_SetUserData(r.parser, &r);
  XML_SetElementHandler(r.parser, begin_element, end_element);
  XML_SetCharacterDataHandler(r.parser, add_text);
  XML_SetStartDoctypeDeclHandler(r.parser, begin_doctype);
  XML_SetSkippedEntityHandler(r.parser, skipped_entity);
  const bool read =
      XML_Parse(r.parser, text.data(), static_cast<int>(text.size()), XML_TRUE) == XML_STATUS_OK;
  if (!read || !r.problem.empty())
    throw input_error("{}:{}:{}: {}", where, XML_GetCurrentLineNumber(r.parser),
                      XML_GetCurrentColumnNumber(r.parser) + 1,
                      r.problem.empty() ? XML_ErrorString(XML_GetErrorCode(r.parser)) : r.problem);
  return std::move(r.document.children.front());
}

}  // namespace weft::parallel
