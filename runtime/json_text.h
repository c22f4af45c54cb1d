// JSON from files that nobody vouches for: bounded in depth and in the number of values, no doubled
// names, and texts of errors that name the place. Typed look-ups that say the key and the value.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace weft::runtime {

struct JsonLimits {
  size_t depth = 64;
  size_t values = size_t{1} << 22;  // members and elements of the whole text
};

// Throws Error "WHERE: not valid JSON at byte 12: …", or the limit or the name that is broken.
nlohmann::json parse_json(std::string_view text, const std::string& where,
                          const JsonLimits& limits = {});

// A short rendering for messages: at most 60 characters.
std::string brief(const nlohmann::json& value);

// Reads members of one object. What is wrong is collected, not thrown, so that a user sees all of
// it at once; a look-up that failed returns nothing, as an absent or null member does.
class JsonFields {
 public:
  // `prefix` stands before keys in messages ("rope_scaling."). `object` and `wrong` outlive this.
  JsonFields(const nlohmann::json& object, std::string prefix, std::vector<std::string>& wrong);

  const nlohmann::json* find(const char* key) const;  // null where absent or JSON null
  bool contains(const char* key) const;               // null counts as there

  std::optional<size_t> count(const char* key, size_t least, size_t most) const;
  std::optional<double> number(const char* key, double least, double most) const;
  std::optional<bool> flag(const char* key) const;
  std::optional<std::string> text(const char* key) const;

  // As above, but absence is wrong as well; returns 0 then.
  size_t required_count(const char* key, size_t least, size_t most) const;
  double required_number(const char* key, double least, double most) const;

  // Adds "KEY is VALUE: what" (or "KEY: what" where there is no such key).
  void refuse(const char* key, const std::string& what) const;

 private:
  const nlohmann::json& object_;
  std::string prefix_;
  std::vector<std::string>& wrong_;
};

}  // namespace weft::runtime
