// config.json (C) and generation_config.json (G). A configuration that is accepted obeys the
// planner's rules and survives being written as YAML.
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "runtime/hf_config.h"
#include "tests/fuzz/fuzz.h"

namespace weft::fuzz {
namespace {

void fuzz_config(std::string_view text) {
  planner::ModelSpec spec = runtime::parse_hf_config(text, "fuzz");
  FUZZ_EXPECT(planner::problems(spec).empty());
  if (spec.name.empty()) spec.name = "fuzz";  // the folder's name stands there
  FUZZ_EXPECT(planner::parse_model_yaml(planner::to_yaml(spec), "written") == spec);
}

// Generation settings are read from a folder: one in memory, for this process.
class Folder {
 public:
  Folder() {
    std::string pattern = "/dev/shm/weft-fuzz-XXXXXX";
    FUZZ_EXPECT(mkdtemp(pattern.data()) != nullptr);
    path_ = pattern;
    std::ofstream(path_ + "/config.json") << "{}";  // looked at for what is missing
  }
  ~Folder() { std::filesystem::remove_all(path_); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void fuzz_generation(std::string_view text) {
  static const Folder folder;
  std::ofstream(folder.path() + "/generation_config.json", std::ios::binary) << text;
  runtime::read_generation_defaults(folder.path());
}

}  // namespace
}  // namespace weft::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n) {
  using namespace weft::fuzz;
  return run_kind({{'C', fuzz_config}, {'G', fuzz_generation}}, data, n);
}
