// Plans, model facts and layouts as texts. The first byte says which: P, M or L. What is accepted
// is written and read back exactly, and can be judged against a model.
#include "planner/manual_plan.h"
#include "planner/plan.h"
#include "tests/fuzz/fuzz.h"
#include "tests/support/small_model.h"

namespace weft::fuzz {
namespace {

using namespace planner;

void fuzz_plan(std::string_view text) {
  const Plan plan = parse_plan_yaml(text, "fuzz");
  FUZZ_EXPECT(parse_plan_yaml(to_yaml(plan), "written") == plan);
  FUZZ_EXPECT(plan_sha256(plan).size() == 64);
  problems(plan, test::six_layer_model());
}

void fuzz_model(std::string_view text) {
  const ModelSpec spec = parse_model_yaml(text, "fuzz");
  FUZZ_EXPECT(problems(spec).empty());
  FUZZ_EXPECT(parse_model_yaml(to_yaml(spec), "written") == spec);
  FUZZ_EXPECT(facts_sha256(spec).size() == 64);
  n_parameters(spec);
}

void fuzz_layout(std::string_view text) {
  const std::vector<StageLayout> layout = parse_layout(text);
  FUZZ_EXPECT(!layout.empty());
  for (const StageLayout& stage : layout) FUZZ_EXPECT(stage.n_layers > 0 && stage.tp > 0);
  ManualOptions options;
  options.rank_memory_bytes = size_t{1} << 30;
  const ModelSpec spec = test::six_layer_model();
  const Plan plan = manual_plan(spec, layout, options);
  FUZZ_EXPECT(problems(plan, spec).empty());
  FUZZ_EXPECT(parse_plan_yaml(to_yaml(plan), "written") == plan);
}

}  // namespace
}  // namespace weft::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n) {
  using namespace weft::fuzz;
  return run_kind({{'P', fuzz_plan}, {'M', fuzz_model}, {'L', fuzz_layout}}, data, n);
}
