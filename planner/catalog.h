// The folder of shipped facts: models, machine and engine profiles, found by name or alias and read
// once.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "planner/engine_profile.h"
#include "planner/machine_profile.h"
#include "planner/model_spec.h"
#include "planner/unknown_name.h"

namespace weft::planner {

class Catalog {
 public:
  // `folder` holds models/, profiles/ and engines/.
  explicit Catalog(std::string folder) : folder_(std::move(folder)) {}

  // Each throws UnknownName with what there is where the name is none of it.
  const ModelSpec& model(const std::string& name);
  const MachineProfile& machine(const std::string& gpu);
  const EngineProfile& engine(const std::string& name);
  // Stands for the engine of its name from now on.
  void add(const EngineProfile& engine);

 private:
  std::string folder_;
  std::optional<std::vector<ModelSpec>> models_;
  std::map<std::string, MachineProfile> machines_;  // by the name that was asked for
  std::map<std::string, EngineProfile> engines_;
};

}  // namespace weft::planner
