// `weft plan --validate`: predictions beside measured rows.
#pragma once

#include <string>

namespace CLI {
class App;
}

namespace weft::launch {

struct ValidateOptions {
  std::string rows;            // CSV; "" = no validation
  std::string engine_profile;  // stands for the shipped one of its engine
  std::string configs;
};

void add_validate_options(CLI::App& command, ValidateOptions& options);
// The table, or one JSON object.
std::string validation_text(const ValidateOptions& options, bool json);

}  // namespace weft::launch
