#include "planner/catalog.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <filesystem>

#include "runtime/base/file.h"
#include "runtime/base/text.h"

namespace weft::planner {
namespace {

std::vector<ModelSpec> read_models(const std::string& folder) {
  if (!is_folder(folder)) throw input_error("{}: no such folder of models", folder);
  std::vector<ModelSpec> models;
  for (const auto& entry : std::filesystem::directory_iterator(folder))
    if (entry.path().extension() == ".yaml")
      models.push_back(read_model_yaml(entry.path().string()));
  std::sort(models.begin(), models.end(),
            [](const ModelSpec& a, const ModelSpec& b) { return a.name < b.name; });
  return models;
}

}  // namespace

const ModelSpec& Catalog::model(const std::string& name) {
  const std::string folder = folder_ + "/models";
  if (!models_) models_ = read_models(folder);
  std::vector<std::string_view> known, own;
  for (const ModelSpec& model : *models_) {
    if (model.name == name ||
        std::find(model.aliases.begin(), model.aliases.end(), name) != model.aliases.end())
      return model;
    own.push_back(model.name);
    known.push_back(model.name);
    known.insert(known.end(), model.aliases.begin(), model.aliases.end());
  }
  throw UnknownName(fmt::format("no model is called \"{}\"{}; {} has {}", name,
                                did_you_mean(name, known), folder, fmt::join(own, ", ")));
}

const MachineProfile& Catalog::machine(const std::string& gpu) {
  const auto found = machines_.find(gpu);
  if (found != machines_.end()) return found->second;
  return machines_.emplace(gpu, find_machine_profile(folder_ + "/profiles", gpu)).first->second;
}

const EngineProfile& Catalog::engine(const std::string& name) {
  const auto found = engines_.find(name);
  if (found != engines_.end()) return found->second;
  return engines_.emplace(name, find_engine_profile(folder_ + "/engines", name)).first->second;
}

void Catalog::add(const EngineProfile& engine) { engines_[engine.name] = engine; }

}  // namespace weft::planner
