// JSON from files that nobody vouches for.
#include "runtime/json_text.h"

#include <cmath>
#include <unordered_set>

#include "runtime/base/error.h"

namespace weft::runtime {
namespace {

using Json = nlohmann::json;

// Watches the parser: refuses what is too deep, too much, or named twice in one object.
class Guard {
 public:
  Guard(const std::string& where, const JsonLimits& limits) : where_(where), limits_(limits) {}

  void see(Json::parse_event_t event, const Json& parsed) {
    using Event = Json::parse_event_t;
    if (event == Event::object_start || event == Event::array_start) return enter();
    if (event == Event::object_end || event == Event::array_end) return names_.pop_back();
    if (++n_values_ > limits_.values)
      throw input_error("{}: more than {} JSON values", where_, limits_.values);
    if (event == Event::key && !names_.back().insert(parsed.get_ref<const std::string&>()).second)
      throw input_error("{}: the name {} occurs twice in one object", where_, brief(parsed));
  }

 private:
  void enter() {
    if (names_.size() >= limits_.depth)
      throw input_error("{}: JSON nested deeper than {} levels", where_, limits_.depth);
    if (++n_values_ > limits_.values)
      throw input_error("{}: more than {} JSON values", where_, limits_.values);
    names_.emplace_back();
  }

  const std::string& where_;
  const JsonLimits& limits_;
  size_t n_values_ = 0;
  std::vector<std::unordered_set<std::string>> names_;  // one set an open object or array
};

// The library's text without its "[json.exception.…] parse error at line 1, column 2: ".
std::string reason(const Json::parse_error& error) {
  const std::string text = error.what();
  const size_t place = text.find("parse error");
  const size_t colon = place == std::string::npos ? place : text.find(": ", place);
  return colon == std::string::npos ? text : text.substr(colon + 2);
}

}  // namespace

Json parse_json(std::string_view text, const std::string& where, const JsonLimits& limits) {
  Guard guard(where, limits);
  const auto watch = [&](int, Json::parse_event_t event, Json& parsed) {
    guard.see(event, parsed);
    return true;
  };
  try {
    return Json::parse(text, watch);
  } catch (const Json::parse_error& error) {
    throw input_error("{}: not valid JSON at byte {}: {}", where, error.byte, reason(error));
  } catch (const Json::exception& error) {
    throw input_error("{}: not valid JSON: {}", where, error.what());
  }
}

std::string brief(const Json& value) {
  if (value.is_object()) return fmt::format("an object of {}", value.size());
  if (value.is_array() && value.size() > 8) return fmt::format("a list of {}", value.size());
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > 60) text = text.substr(0, 57) + "...";
  return text;
}

JsonFields::JsonFields(const Json& object, std::string prefix, std::vector<std::string>& wrong)
    : object_(object), prefix_(std::move(prefix)), wrong_(wrong) {
  WEFT_EXPECT(object.is_object());
}

const Json* JsonFields::find(const char* key) const {
  const auto it = object_.find(key);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

bool JsonFields::contains(const char* key) const { return object_.contains(key); }

void JsonFields::refuse(const char* key, const std::string& what) const {
  const auto it = object_.find(key);
  wrong_.push_back(it == object_.end()
                       ? fmt::format("{}{}: {}", prefix_, key, what)
                       : fmt::format("{}{} is {}: {}", prefix_, key, brief(*it), what));
}

std::optional<size_t> JsonFields::count(const char* key, size_t least, size_t most) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const bool whole = value->is_number_unsigned();
  if (whole && value->get<uint64_t>() >= least && value->get<uint64_t>() <= most)
    return value->get<size_t>();
  refuse(key, fmt::format("must be a whole number from {} to {}", least, most));
  return std::nullopt;
}

std::optional<double> JsonFields::number(const char* key, double least, double most) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_number() && value->get<double>() >= least && value->get<double>() <= most)
    return value->get<double>();
  refuse(key, fmt::format("must be a number from {:g} to {:g}", least, most));
  return std::nullopt;
}

std::optional<bool> JsonFields::flag(const char* key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  refuse(key, "must be true or false");
  return std::nullopt;
}

std::optional<std::string> JsonFields::text(const char* key) const {
  const Json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (value->is_string()) return value->get<std::string>();
  refuse(key, "must be a string");
  return std::nullopt;
}

size_t JsonFields::required_count(const char* key, size_t least, size_t most) const {
  if (find(key) == nullptr) refuse(key, "missing, and it must be there");
  return count(key, least, most).value_or(0);
}

double JsonFields::required_number(const char* key, double least, double most) const {
  if (find(key) == nullptr) refuse(key, "missing, and it must be there");
  return number(key, least, most).value_or(0);
}

}  // namespace weft::runtime
