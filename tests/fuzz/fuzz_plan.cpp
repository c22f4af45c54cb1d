// Plans, model and cluster facts, workloads and layouts as texts. The first byte says which: P, M,
// C, W or L. What is accepted is written and read back exactly, and can be judged against a model.
#include "planner/cluster_spec.h"
#include "planner/manual_plan.h"
#include "planner/plan.h"
#include "planner/workload.h"
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

void fuzz_cluster(std::string_view text) {
  const ClusterSpec cluster = parse_cluster_yaml(text, "fuzz");
  FUZZ_EXPECT(problems(cluster).empty());
  FUZZ_EXPECT(parse_cluster_yaml(to_yaml(cluster), "written") == cluster);
  FUZZ_EXPECT(n_gpus(cluster) <= kMostClusterGpus);
}

void fuzz_workload(std::string_view text) {
  const Workload workload = parse_workload_yaml(text, "fuzz");
  FUZZ_EXPECT(problems(workload).empty());
  FUZZ_EXPECT(parse_workload_yaml(to_yaml(workload), "written") == workload);
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
  return run_kind({{'P', fuzz_plan},
                   {'M', fuzz_model},
                   {'C', fuzz_cluster},
                   {'W', fuzz_workload},
                   {'L', fuzz_layout}},
                  data, n);
}
