// The shipped profiles, and small ones made for a test.
#pragma once

#include <string>

#include "planner/catalog.h"
#include "planner/cost_model.h"
#include "tests/planner/examples.h"

namespace weft::planner {

inline std::string configs() { return std::string(WEFT_SOURCE_DIR) + "/configs"; }
inline MachineProfile machine(const std::string& gpu) {
  return find_machine_profile(configs() + "/profiles", gpu);
}
inline EngineProfile engine(const std::string& name) {
  return find_engine_profile(configs() + "/engines", name);
}

// One class of that GPU, weft's engine, bf16, 2,000 prompt and 200 output tokens.
inline CostSetting cost_setting(const std::string& model_name, const std::string& gpu) {
  CostSetting setting;
  setting.model = model(model_name);
  setting.engine = engine("weft");
  setting.nodes = {{machine(gpu), 0, {}}};
  setting.prompt_tokens = 2000;
  setting.output_tokens = 200;
  return setting;
}

inline StageShape whole_model(const ModelSpec& spec, size_t tp) {
  StageShape shape;
  shape.n_layers = spec.n_layers;
  shape.tp = tp;
  shape.has_embedding = shape.has_head = true;
  return shape;
}

inline Schedule schedule(size_t batch, size_t in_flight = 1, size_t chunk = 512) {
  return {batch, in_flight, chunk};
}

}  // namespace weft::planner
