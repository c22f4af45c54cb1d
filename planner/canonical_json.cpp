// nlohmann's objects are sorted by key; its numbers are not always the shortest, so they are
// written here.
#include "planner/canonical_json.h"

#include <charconv>

#include "runtime/base/error.h"

namespace weft::planner {
namespace {

std::string shortest(double x) {
  char text[32];
  const auto [end, error] = std::to_chars(text, text + sizeof text, x);
  WEFT_EXPECT(error == std::errc());
  return {text, end};
}

void append(std::string& out, const nlohmann::json& value) {
  if (value.is_number_float()) {
    out += shortest(value.get<double>());
    return;
  }
  if (!value.is_structured()) {
    out += value.dump();
    return;
  }
  out += value.is_object() ? '{' : '[';
  const char* separator = "";
  for (const auto& [key, item] : value.items()) {
    out += separator;
    if (value.is_object()) out += nlohmann::json(key).dump() + ':';
    append(out, item);
    separator = ",";
  }
  out += value.is_object() ? '}' : ']';
}

}  // namespace

std::string canonical_json(const nlohmann::json& value) {
  std::string out;
  append(out, value);
  return out;
}

}  // namespace weft::planner
