#include "launch/plan_validate.h"

#include <CLI/CLI.hpp>

#include "launch/config_folder.h"
#include "planner/validate.h"

namespace weft::launch {

void add_validate_options(CLI::App& command, ValidateOptions& options) {
  CLI::Option* rows =
      command
          .add_option("--validate", options.rows,
                      "Predict every measured row of this CSV file, and print the errors")
          ->type_name("FILE");
  command
      .add_option("--engine-profile", options.engine_profile,
                  "Used instead of the shipped profile of its engine")
      ->type_name("FILE")
      ->needs(rows);
  command
      .add_option("--configs", options.configs,
                  "Folder with models, clusters, profiles and engines (default: the shipped one)")
      ->type_name("DIR");
}

std::string validation_text(const ValidateOptions& options, bool json) {
  planner::Catalog catalog(config_folder(options.configs));
  if (!options.engine_profile.empty())
    catalog.add(planner::read_engine_profile(options.engine_profile));
  const planner::Validation validation =
      planner::validate(catalog, planner::read_measured_rows(options.rows));
  return json ? planner::validation_json(validation) : planner::validation_table(validation);
}

}  // namespace weft::launch
