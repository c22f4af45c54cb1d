// Plans, model facts and layouts as texts. The first byte says which: P, M or L. What is accepted
// is written and read back exactly, and can be judged against a model.
#include "planner/manual_plan.h"
#include "planner/plan.h"
#include "tests/fuzz/fuzz.h"

namespace weft::fuzz {
namespace {

using namespace planner;

ModelSpec small_model() {
  ModelSpec spec;
  spec.name = "small";
  spec.architecture = "LlamaForCausalLM";
  spec.n_layers = 6;
  spec.hidden = 64;
  spec.n_heads = 8;
  spec.n_kv_heads = 2;
  spec.head_dim = 8;
  spec.ffn = 160;
  spec.vocab = 2048;
  spec.context = 4096;
  return spec;
}

void fuzz_plan(std::string_view text) {
  const Plan plan = parse_plan_yaml(text, "fuzz");
  FUZZ_EXPECT(parse_plan_yaml(to_yaml(plan), "written") == plan);
  FUZZ_EXPECT(plan_sha256(plan).size() == 64);
  problems(plan, small_model());
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
  const ModelSpec spec = small_model();
  const Plan plan = manual_plan(spec, layout, options);
  FUZZ_EXPECT(problems(plan, spec).empty());
  FUZZ_EXPECT(parse_plan_yaml(to_yaml(plan), "written") == plan);
}

}  // namespace
}  // namespace weft::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n) {
  using namespace weft::fuzz;
  if (n == 0) return -1;
  const std::string_view text = text_of(data + 1, n - 1);
  switch (data[0]) {
    case 'P':
      may_refuse([&] { fuzz_plan(text); });
      return 0;
    case 'M':
      may_refuse([&] { fuzz_model(text); });
      return 0;
    case 'L':
      may_refuse([&] { fuzz_layout(text); });
      return 0;
    default:
      return -1;  // not to be kept
  }
}
