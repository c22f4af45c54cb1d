// JSON with one spelling for one value: sorted keys, no spaces, numbers in their shortest form that
// reads back exactly. What is hashed.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

namespace weft::planner {

std::string canonical_json(const nlohmann::json& value);

}  // namespace weft::planner
