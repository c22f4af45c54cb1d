#include "launch/config_folder.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <system_error>
#include <vector>

#include "runtime/base/error.h"
#include "runtime/base/file.h"
#include "runtime/base/text.h"

namespace weft::launch {

std::string config_folder(const std::string& given) {
  if (!given.empty()) {
    if (is_folder(given)) return given;
    throw input_error("--configs {}: no such folder", given);
  }
  std::error_code failed;
  const std::filesystem::path binary = std::filesystem::read_symlink("/proc/self/exe", failed);
  const std::filesystem::path folder = binary.parent_path();
  const std::string installed = (folder.parent_path() / "share/weft/configs").string();
  const std::string built = (folder.parent_path().parent_path() / "configs").string();
  for (const std::string& place : {installed, built, std::string("configs")})
    if (is_folder(place + "/profiles")) return place;
  throw input_error("no folder of profiles in {}, {} or ./configs: name it with --configs",
                    installed, built);
}

planner::ClusterSpec find_cluster(const std::string& given, const std::string& configs) {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const bool is_path = given.find('/') != std::string::npos || given.ends_with(".yaml");
  if (is_path || fs::exists(given, ignored)) return planner::read_cluster_yaml(given);
  const std::string folder = configs + "/clusters";
  if (fs::exists(folder + "/" + given + ".yaml", ignored))
    return planner::read_cluster_yaml(folder + "/" + given + ".yaml");
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder, ignored))
    names.push_back(entry.path().stem().string());
  std::sort(names.begin(), names.end());
  const std::vector<std::string_view> known(names.begin(), names.end());
  throw input_error("no file {}, and no cluster of that name{}; {} has {}", given,
                    did_you_mean(given, known), folder, fmt::join(names, ", "));
}

std::optional<planner::ClusterSpec> shipped_cluster(const std::string& name) {
  try {
    const std::string path = config_folder("") + "/clusters/" + name + ".yaml";
    if (name.find('/') == std::string::npos && is_file(path))
      return planner::read_cluster_yaml(path);
  } catch (const Error&) {  // no such folder: nothing is known of the cluster
  }
  return std::nullopt;
}

}  // namespace weft::launch
