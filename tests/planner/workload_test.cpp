// Workload files: reading back, defaults, and what is refused with its place.
#include "planner/workload.h"

#include "tests/planner/examples.h"

namespace weft::planner {
namespace {

const char* const kAll =
    "version: 1\nprompt_tokens: 2048\noutput_tokens: 256\nconcurrency: 32\nobjective: gpus\n"
    "slo_ttft_ms: 500\nslo_tpot_ms: 40.5\nmax_gpus: 12\n";

TEST(WorkloadYaml, ReadsBackExactly) {
  const Workload all = parse_workload_yaml(kAll, "w.yaml");
  EXPECT_EQ(all.objective, Objective::gpus);
  EXPECT_EQ(all.slo_tpot_ms, 40.5);
  EXPECT_EQ(all.max_gpus, 12u);
  EXPECT_EQ(to_yaml(all), kAll);
  const Workload few = parse_workload_yaml(
      "version: 1\nprompt_tokens: 1\noutput_tokens: 1\nobjective: throughput\n", "w.yaml");
  EXPECT_FALSE(few.concurrency || few.slo_ttft_ms || few.slo_tpot_ms || few.max_gpus);
  EXPECT_EQ(parse_workload_yaml(to_yaml(few), "again"), few);
}

std::string error_with(const std::string& from, const std::string& to) {
  std::string text = kAll;
  text.replace(text.find(from), from.size(), to);
  return error_of([&] { parse_workload_yaml(text, "w.yaml"); });
}

TEST(WorkloadYaml, SaysWhatIsWrongAndWhere) {
  EXPECT_EQ(error_with("prompt_tokens: 2048", "prompt_tokens: 0"),
            "w.yaml:2:16: prompt_tokens: \"0\" is not a whole number from 1 to 1073741824");
  EXPECT_EQ(error_with("slo_ttft_ms: 500", "slo_ttft_ms: -5"),
            "w.yaml:6:14: slo_ttft_ms: -5 is no time above 0");
  EXPECT_SAYS(error_with("objective: gpus", "objective: speed"),
              "is none of latency, throughput, gpus");
  EXPECT_SAYS(error_with("concurrency", "concurency"), "did you mean \"concurrency\"?");
  EXPECT_SAYS(error_with("concurrency: 32\n", ""), "objective gpus needs a concurrency");
  EXPECT_SAYS(error_with("slo_ttft_ms: 500\nslo_tpot_ms: 40.5\n", ""), "needs a limit to meet");
  EXPECT_SAYS(error_with("max_gpus: 12", "max_gpus: 0"), "w.yaml:8:11");
  EXPECT_SAYS(error_with("output_tokens: 256\n", ""), "\"output_tokens\" is missing");
}

TEST(Workload, ProblemsOfOneMadeInCode) {
  Workload workload;
  EXPECT_TRUE(problems(workload).empty());
  workload.output_tokens = 0;
  workload.slo_tpot_ms = 0;
  workload.concurrency.reset();
  EXPECT_EQ(problems(workload).size(), 3u);
}

}  // namespace
}  // namespace weft::planner
