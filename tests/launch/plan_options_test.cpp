// What `weft run` may do with a plan: take it, lower its limits, or make one from the job's ranks.
#include "launch/plan_options.h"

#include <gtest/gtest.h>

#include <CLI/CLI.hpp>
#include <filesystem>

#include "runtime/base/error.h"
#include "runtime/base/file.h"

namespace weft::launch {
namespace {

constexpr size_t kGib = size_t{1} << 30;

class PlanOptionsTest : public ::testing::Test {
 protected:
  PlanOptionsTest()
      : spec_(planner::read_model_yaml(std::string(WEFT_SOURCE_DIR) +
                                       "/configs/models/deepseek-coder-1.3b.yaml")),
        path_(std::filesystem::temp_directory_path() /
              fmt::format("weft-options-{}-{}.yaml", getpid(),
                          ::testing::UnitTest::GetInstance()->current_test_info()->name())) {
    planner::ManualOptions options;
    options.rank_memory_bytes = 64 * kGib;
    options.context = 4096;
    options.max_sequences = 8;
    file_plan_ = planner::manual_plan(spec_, planner::parse_layout("12x2,12x1"), options);
    write_file(path_, to_yaml(file_plan_));
  }
  ~PlanOptionsTest() override { std::filesystem::remove(path_); }

  static PlanOptions parse(std::vector<std::string> words) {
    CLI::App app;
    PlanOptions options;
    add_plan_options(app, options);
    add_plan_file_option(app, options);
    std::reverse(words.begin(), words.end());
    app.parse(words);
    return options;
  }
  planner::Plan make(std::vector<std::string> words, size_t world_size) const {
    return make_plan(parse(std::move(words)), spec_, world_size, 64 * kGib);
  }
  std::string error(std::vector<std::string> words, size_t world_size) const {
    try {
      make(std::move(words), world_size);
    } catch (const std::exception& failure) {
      return failure.what();
    }
    return "no error";
  }
  void expect_error(std::vector<std::string> words, size_t world_size, const std::string& part) {
    const std::string text = error(std::move(words), world_size);
    EXPECT_NE(text.find(part), std::string::npos) << "got: " << text << "\nwants: " << part;
  }

  planner::ModelSpec spec_;
  std::string path_;
  planner::Plan file_plan_;
};

TEST_F(PlanOptionsTest, AFileIsTakenLiterally) {
  EXPECT_EQ(make({"--plan", path_}, 3), file_plan_);
  EXPECT_EQ(make({"--plan", path_}, 0), file_plan_);
}

TEST_F(PlanOptionsTest, FlagsLowerLimitsOnly) {
  const planner::Plan lowered = make(
      {"--plan", path_, "--max-sequences", "2", "--max-batch-tokens", "100", "--context", "1000"},
      3);
  EXPECT_EQ(lowered.limits.max_sequences, 2u);
  EXPECT_EQ(lowered.limits.max_batch_tokens, 100u);
  EXPECT_EQ(lowered.limits.prefill_chunk, 100u);  // never above a batch
  EXPECT_EQ(lowered.limits.context, 1000u);
  EXPECT_EQ(lowered.replicas, file_plan_.replicas);
  EXPECT_LT(lowered.predicted.rank_memory[0].activations,
            file_plan_.predicted.rank_memory[0].activations);
  expect_error({"--plan", path_, "--context", "8192"}, 3,
               "--context 8192 is above the plan's 4096: a flag may lower a limit, never raise it");
  expect_error({"--plan", path_, "--max-sequences", "9", "--kv-blocks", "9999999"}, 3,
               "--kv-blocks 9999999 is above the plan's 512");
}

TEST_F(PlanOptionsTest, FormatsNumericsAndLayoutStayThePlans) {
  EXPECT_EQ(make({"--plan", path_, "--dtype", "bf16", "--numerics", "invariant"}, 3), file_plan_);
  expect_error({"--plan", path_, "--dtype", "f32"}, 3,
               "--dtype f32 is not the plan's weights bf16");
  expect_error({"--plan", path_, "--numerics", "fast"}, 3,
               "--numerics fast is not the plan's invariant");
  expect_error({"--plan", path_, "--layout", "24x1"}, 1, "excludes");
  expect_error({"--plan", path_, "--tp", "2"}, 2, "excludes");
}

TEST_F(PlanOptionsTest, TheJobMustHaveThePlansRanks) {
  expect_error({"--plan", path_}, 4,
               "layout 12x2,12x1 needs 3 ranks and the job has 4: start it with mpirun -n 3");
  expect_error({"--layout", "24x2"}, 3, "layout 24x2 needs 2 ranks and the job has 3");
  expect_error({"--tp", "2"}, 1, "layout 24x2 needs 2 ranks and the job has 1");
}

TEST_F(PlanOptionsTest, NothingMeansOneStageOverAllRanks) {
  EXPECT_EQ(planner::layout_text(make({}, 1)), "24x1");
  EXPECT_EQ(planner::layout_text(make({}, 4)), "24x4");
  expect_error({}, 3, "TP 3: does not divide 16 heads; legal: 1 2 4 8 16");
  expect_error({}, 0, "give --cluster to search");
}

TEST_F(PlanOptionsTest, APlanMustFitModelAndMemory) {
  const planner::ModelSpec other = planner::read_model_yaml(
      std::string(WEFT_SOURCE_DIR) + "/configs/models/deepseek-coder-6.7b.yaml");
  EXPECT_THROW(make_plan(parse({"--plan", path_}), other, 3, 64 * kGib), Error);
  expect_error({"--plan", path_, "--gpu-memory-gib", "1"}, 3, "stage 0: short ");
  expect_error({"--plan", path_ + ".missing"}, 3, ".missing: No such file");
}

TEST_F(PlanOptionsTest, AutoIsTheCheckpointsDType) {
  spec_.dtype = DType::f32;
  EXPECT_EQ(make({"--dtype", "auto"}, 1).formats.weights, DType::f32);
  EXPECT_EQ(make({}, 1).formats.activations, DType::f32);
  EXPECT_EQ(make({"--dtype", "f16"}, 1).formats.kv_value, DType::f16);
}

TEST_F(PlanOptionsTest, ThisMachineHasMemory) {
  EXPECT_GT(machine_memory_bytes(), kGib / 8);
  EXPECT_LT(machine_memory_bytes(), size_t{1} << 50);
}

}  // namespace
}  // namespace weft::launch
