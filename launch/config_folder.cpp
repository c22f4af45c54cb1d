#include "launch/config_folder.h"

#include <filesystem>
#include <system_error>

#include "runtime/base/error.h"
#include "runtime/base/file.h"

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

}  // namespace weft::launch
