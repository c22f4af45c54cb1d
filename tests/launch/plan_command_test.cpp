// `weft plan` as a user calls it: what goes to which stream, and that errors write nothing.
#include <nlohmann/json.hpp>

#include "planner/plan.h"
#include "tests/launch/plan_fixture.h"

namespace weft::launch {
namespace {

TEST_F(PlanCommandTest, WritesThePlanAndShowsItsMemory) {
  const Outcome outcome = plan({"--model", model("deepseek-coder-33b"), "--layout", "31x8,31x8",
                                "--gpu-memory-gib", "80", "-o", file("plan.yaml")});
  EXPECT_EQ(outcome.error, "");
  EXPECT_EQ(outcome.err, "");
  const planner::Plan written = planner::read_plan_yaml(file("plan.yaml"));
  EXPECT_EQ(planner::layout_text(written), "31x8,31x8");
  EXPECT_EQ(written.limits.batches_in_flight, 2u);
  EXPECT_EQ(n_files(), 1u);
  for (const char* part : {"33.34 B parameters", "16 ranks", "invariant numerics", "0-30", "31-61",
                           "8-15", "a rank has 80.00 GiB (--gpu-memory-gib)", "weights", "KV",
                           "activations", "buffers", "total"})
    EXPECT_NE(outcome.out.find(part), std::string::npos) << part << " is not in\n" << outcome.out;
}

TEST_F(PlanCommandTest, WithoutAFileThePlanIsTheOutput) {
  const Outcome outcome = plan(
      {"--model", model("deepseek-coder-1.3b"), "--tp", "2", "--pp", "3", "--gpu-memory-gib", "8"});
  EXPECT_EQ(outcome.error, "");
  const planner::Plan read = planner::parse_plan_yaml(outcome.out, "stdout");
  EXPECT_EQ(planner::layout_text(read), "8x2,8x2,8x2");
  EXPECT_NE(outcome.err.find("layout 8x2,8x2,8x2"), std::string::npos) << outcome.err;
}

TEST_F(PlanCommandTest, JsonHoldsPlanHashAndMemory) {
  const Outcome outcome =
      plan({"--model", model("deepseek-coder-33b"), "--layout", "62x56", "--numerics", "fast",
            "--gpu-memory-gib", "80", "--json", "-o", file("plan.yaml")});
  EXPECT_EQ(outcome.error, "");
  const nlohmann::json json = nlohmann::json::parse(outcome.out);
  const planner::Plan written = planner::read_plan_yaml(file("plan.yaml"));
  EXPECT_EQ(json["plan_sha256"], planner::plan_sha256(written));
  EXPECT_EQ(json["layout"], "62x56");
  EXPECT_EQ(json["world_size"], 56);
  EXPECT_EQ(json["plan"]["numerics"], "fast");
  EXPECT_EQ(json["plan"]["replicas"][0]["stages"][0]["layers"], nlohmann::json({0, 62}));
  const nlohmann::json& memory = json["memory"][0];
  EXPECT_EQ(memory["total"].get<size_t>(),
            memory["weights"].get<size_t>() + memory["kv"].get<size_t>() +
                memory["activations"].get<size_t>() + memory["buffers"].get<size_t>());
  EXPECT_EQ(memory["total"].get<size_t>(), written.predicted.rank_memory[0].total());
}

TEST_F(PlanCommandTest, MachineMemoryIsSharedByTheRanks) {
  const Outcome outcome = plan({"--model", model("deepseek-coder-1.3b"), "--layout", "12x1,12x1",
                                "--context", "64", "--max-sequences", "1", "--max-batch-tokens",
                                "8", "--dtype", "f16", "-o", file("plan.yaml")});
  EXPECT_EQ(outcome.error, "");
  EXPECT_NE(outcome.out.find("this machine's"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("context 64 of the model's 16384"), std::string::npos) << outcome.out;
  EXPECT_NE(outcome.out.find("shared by 2"), std::string::npos) << outcome.out;
  EXPECT_EQ(planner::read_plan_yaml(file("plan.yaml")).formats.kv_key, DType::f16);
}

TEST_F(PlanCommandTest, RefusesWithNumbers) {
  const std::string coder = model("deepseek-coder-33b");
  expect_refused({"--model", coder, "--layout", "62x7", "--gpu-memory-gib", "80"},
                 "TP 7: 8 KV heads are neither divided by it nor divide it; legal: 1 2 4 8 56");
  expect_refused({"--model", coder, "--layout", "62x1", "--gpu-memory-gib", "40"},
                 "stage 0: short 2");
  expect_refused({"--model", coder, "--layout", "60x8", "--gpu-memory-gib", "80"},
                 "layers [60, 62) are in no stage");
  expect_refused({"--model", coder, "--pp", "63", "--gpu-memory-gib", "80"},
                 "PP 63: 62 layers make 1 to 62 stages");
}

TEST_F(PlanCommandTest, RefusesWhatItCannotRead) {
  const std::string coder = model("deepseek-coder-33b");
  expect_refused({"--model", coder}, "the layout is missing: give --cluster to search");
  expect_refused({"--model", coder, "--layout", "62x1", "--tp", "2"}, "excludes");
  expect_refused({"--layout", "62x1"}, "--model is required");
  expect_refused({"--model", coder, "--layout", "62"}, "write LAYERSxTP");
  expect_refused({"--model", coder, "--layout", "62x1", "--dtype", "bf17"},
                 "--dtype \"bf17\" is none of auto, bf16, f16, f32 (did you mean \"bf16\"?)");
  expect_refused({"--model", coder, "--layout", "62x1", "--numerics", "exact"},
                 "--numerics \"exact\" is none of fast, invariant");
  expect_refused({"--model", coder, "--layout", "62x1", "--context", "-5"},
                 "--context: \"-5\" is not a whole number from 0 to");
  expect_refused({"--model", coder, "--layout", "62x1", "--kv-blocks", "0"},
                 "--kv-blocks 0: must be at least 1");
  expect_refused({"--model", coder, "--layout", "62x1", "--gpu-memory-gib", "-1"},
                 "--gpu-memory-gib -1 is not above 0");
  expect_refused({"--model", coder, "--layout", "62x1", "--gpu-memory-gib", "nan"},
                 "--gpu-memory-gib nan is not above 0");
  expect_refused({"--model", file("none.yaml"), "--layout", "62x1"}, "none.yaml");
}

TEST_F(PlanCommandTest, AnUnwritableOutputLeavesNothing) {
  const std::vector<std::string> words = {
      "--model", model("deepseek-coder-1.3b"), "--layout", "24x1", "--gpu-memory-gib", "80", "-o"};
  std::vector<std::string> to_folder = words;
  to_folder.push_back(folder_);
  EXPECT_NE(plan(to_folder).error.find("is no regular file"), std::string::npos);
  std::vector<std::string> to_nowhere = words;
  to_nowhere.push_back(file("no/such/plan.yaml"));
  const Outcome outcome = plan(to_nowhere);
  EXPECT_NE(outcome.error.find("no/such/plan.yaml: No such file"), std::string::npos)
      << outcome.error;
  EXPECT_EQ(outcome.out, "");
  EXPECT_EQ(n_files(), 0u);
}

}  // namespace
}  // namespace weft::launch
