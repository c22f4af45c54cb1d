// Where the shipped models, profiles and clusters lie.
#pragma once

#include <optional>
#include <string>

#include "planner/cluster_spec.h"

namespace weft::launch {

// `given` where it is not empty; else share/weft/configs beside an installed binary's bin, or the
// configs of the source tree that the binary was built in, or ./configs. Throws Error with the
// places where none is there.
std::string config_folder(const std::string& given);

// A file, else the name of a shipped cluster; throws Error with those there are.
planner::ClusterSpec find_cluster(const std::string& given, const std::string& configs);
// The shipped cluster that a plan names, where there is one.
std::optional<planner::ClusterSpec> shipped_cluster(const std::string& name);

}  // namespace weft::launch
