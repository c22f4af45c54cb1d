// `weft check --preflight`: all of preflight under the job's launcher, and nothing else.
#pragma once

#include <optional>
#include <string>

#include "launch/device_choice.h"
#include "launch/plan_options.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace weft::launch {

struct PreflightOptions {
  bool wanted = false;
  std::string cluster;            // file or name; empty: the plan's, where it is shipped
  std::optional<double> limit_s;  // of every step, in place of its own
  bool guardian = true;
  bool bind = true;
  DeviceOptions device;
};

CLI::Option* add_preflight_limit(CLI::App& command, std::optional<double>& limit_s);

// Returns --preflight itself.
CLI::Option* add_preflight_options(CLI::App& command, PreflightOptions& options);

// A collective of all ranks. Without a model its weights are not looked at. Rank 0 says what was
// found; throws AlreadySaid where the job can't run.
void preflight_check(const PreflightOptions& options, const PlanOptions& plan,
                     const std::string& model, const std::string& weights);

}  // namespace weft::launch
