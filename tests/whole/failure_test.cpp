// Whatever ends or stops one rank of a running job ends the job: soon, everywhere, with a status
// that is not zero, and the cause once on stderr. And what asks it to end in order does so.
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <set>

#include "tests/support/command.h"
#include "tests/support/job_processes.h"

namespace weft::test {
namespace {

using Clock = std::chrono::steady_clock;

const std::string kDemo = WEFT_SOURCE_DIR "/configs/models/demo";
constexpr double kEndsWithin = 5;
constexpr int kPrompts = 400;  // more than any test waits for

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

size_t n_times(const std::string& text, const std::string& word) {
  size_t n = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++n;
  return n;
}

std::string new_mark() {
  static int n = 0;
  return std::to_string(getpid()) + "-" + std::to_string(++n);
}

// A job under mpirun that would run for minutes.
class LongJob {
 public:
  explicit LongJob(int n_ranks, const std::vector<std::string>& more = {},
                   std::string model = kDemo)
      : n_ranks_(n_ranks), mark_(new_mark()), model_(std::move(model)) {
    std::ofstream prompts(folder_ / "prompts.jsonl");
    for (int i = 0; i < kPrompts; ++i)
      prompts << R"({"prompt": "import os", "max_tokens": 2000, "ignore_eos": true})" << '\n';
    prompts.close();
    command_.emplace(arguments(more));
  }
  ~LongJob() {
    command_.reset();
    for (const JobProcess& process : job_processes(mark_)) kill(process.pid, SIGKILL);
  }

  // Until its steps run.
  bool runs() {
    if (!command_->says("loaded", 60)) return false;
    usleep(700'000);
    std::ifstream maps("/proc/" + std::to_string(rank(n_ranks_ > 1 ? 1 : -1)) + "/maps");
    for (std::string line; std::getline(maps, line);)
      if (const size_t at = line.find("/dev/shm/vader_segment"); at != std::string::npos)
        shared_.insert(line.substr(at));
    return true;
  }
  pid_t launcher() const { return command_->pid(); }
  pid_t rank(int number) const { return pid_of(mark_, number, false); }
  pid_t guardian(int number) const { return pid_of(mark_, number, true); }
  std::vector<JobProcess> processes() const { return job_processes(mark_); }
  CommandResult finish(int timeout_s = 30) { return command_->finish(timeout_s); }

  // Every process of it is gone, the ones that nobody waits for included.
  bool nothing_left() const {
    for (int i = 0; i < 30; ++i) {
      if (processes().empty()) return true;
      usleep(100'000);
    }
    return false;
  }
  // MPI's shared memory that ranks had by name.
  std::vector<std::string> shared_left() const {
    std::vector<std::string> left;
    for (const std::string& path : shared_)
      if (access(path.c_str(), F_OK) == 0) left.push_back(path);
    return left;
  }

 private:
  std::vector<std::string> arguments(const std::vector<std::string>& more) const {
    std::vector<std::string> all = {"env", "WEFT_TEST_JOB=" + mark_};
    if (n_ranks_ > 1)
      for (const char* one : {"mpirun", "--oversubscribe", "--bind-to", "none", "-n"})
        all.emplace_back(one);
    if (n_ranks_ > 1) all.push_back(std::to_string(n_ranks_));
    for (const std::string& one :
         {std::string(WEFT_BINARY), std::string("run"), std::string("--model"), model_,
          std::string("--pp"), std::to_string(n_ranks_), std::string("--prompts"),
          folder_ / "prompts.jsonl"})
      all.push_back(one);
    all.insert(all.end(), more.begin(), more.end());
    return all;
  }

  int n_ranks_;
  std::string mark_;
  std::string model_;
  std::set<std::string> shared_;
  TemporaryFolder folder_;
  std::optional<Command> command_;
};

// The job has ended by itself since `start`, for this reason, said once.
void expect_ended(LongJob& job, Clock::time_point start, const std::string& cause,
                  double within = kEndsWithin) {
  const CommandResult result = job.finish();
  const double took = seconds_since(start);
  EXPECT_FALSE(result.timed_out) << result.err;
  EXPECT_LT(took, within) << result.err;
  EXPECT_NE(result.status, 0);
  EXPECT_EQ(n_times(result.err, "weft: rank"), 1u) << result.err;
  EXPECT_TRUE(std::regex_search(result.err, std::regex("weft: " + cause)))
      << "no \"" << cause << "\" in: " << result.err;
  EXPECT_TRUE(job.nothing_left());
  EXPECT_EQ(job.shared_left(), std::vector<std::string>());
  testing::Test::RecordProperty("seconds", std::to_string(took));
  std::cout << "  ended after " << took << " s, status " << result.status << "\n";
}

// Param: the rank of three that meets it.
class OnRank : public testing::TestWithParam<int> {
 protected:
  void SetUp() override { ASSERT_TRUE(job_.runs()) << job_.finish().err; }
  std::string named() const {
    return "rank " + std::to_string(GetParam()) + " \\(host .*, CPU\\): ";
  }
  Clock::time_point hit(int signal_number) {
    const pid_t pid = job_.rank(GetParam());
    EXPECT_GT(pid, 0);
    EXPECT_EQ(kill(pid, signal_number), 0);
    return Clock::now();
  }

  LongJob job_{3};
};

TEST_P(OnRank, Killed) {
  const auto start = hit(SIGKILL);
  expect_ended(job_, start, named() + "killed by signal 9 \\(Killed\\)");
}

TEST_P(OnRank, SegmentationFault) {
  const auto start = hit(SIGSEGV);
  expect_ended(job_, start, named() + "killed by signal 11 \\(Segmentation fault\\)");
}

TEST_P(OnRank, Stopped) {
  const auto start = hit(SIGSTOP);
  expect_ended(job_, start, named() + "stopped \\(SIGSTOP\\)");
}

TEST_P(OnRank, GuardianKilled) {
  const pid_t guardian = job_.guardian(GetParam());
  ASSERT_GT(guardian, 0);
  ASSERT_EQ(kill(guardian, SIGKILL), 0);
  expect_ended(job_, Clock::now(), named() + "its guardian has ended");
}

INSTANTIATE_TEST_SUITE_P(FirstMiddleLast, OnRank, testing::Values(0, 1, 2));

// Pages of the embedding lie in a rank's memory, and are gone with the file's.
TEST(CheckpointCutWhileMapped, EndsAllAndSaysSo) {
  const TemporaryFolder folder;
  const std::string model = folder / "demo";
  std::filesystem::copy(kDemo, model);
  LongJob job(2, {}, model);
  ASSERT_TRUE(job.runs()) << job.finish().err;
  std::filesystem::resize_file(model + "/model.safetensors", 4096);
  expect_ended(job, Clock::now(),
               "rank [01] \\(host .*, CPU\\): killed by signal 7 \\(Bus error\\): a file that it "
               "maps was cut short");
}

TEST(CheckpointCutWhileMapped, DoesNotMatterToCopies) {
  const TemporaryFolder folder;
  const std::string model = folder / "demo";
  std::filesystem::copy(kDemo, model);
  LongJob job(2, {"--no-mmap", "--drain-s", "2"}, model);
  ASSERT_TRUE(job.runs()) << job.finish().err;
  std::filesystem::resize_file(model + "/model.safetensors", 4096);
  usleep(500'000);
  ASSERT_EQ(kill(job.launcher(), SIGUSR1), 0);  // a drain: it ran till then
  EXPECT_EQ(job.finish().status, 0);
}

// A program's rank fails by itself.
CommandResult run_failing(int rank, const std::string& way, bool mpirun_ends_others = true) {
  std::vector<std::string> all = {"mpirun", "--oversubscribe", "--bind-to", "none", "-n", "3"};
  if (!mpirun_ends_others) all.insert(all.begin() + 1, "--enable-recovery");
  for (const std::string& one : {std::string(WEFT_GUARDIAN_PROGRAM), std::to_string(rank), way})
    all.push_back(one);
  return run_command(all, 60);
}

// Param: rank and way; then what is said.
struct Failing {
  const char* way;
  const char* cause;
};
class ByItself : public testing::TestWithParam<std::tuple<int, Failing>> {};

TEST_P(ByItself, EndsAll) {
  const auto [rank, failing] = GetParam();
  const CommandResult result = run_failing(rank, failing.way);
  EXPECT_FALSE(result.timed_out) << result.err;
  EXPECT_NE(result.status, 0);
  EXPECT_EQ(n_times(result.err, "weft: "), 1u) << result.err;
  const std::string line = "weft: rank " + std::to_string(rank) + " (host ";
  EXPECT_NE(result.err.find(line), std::string::npos) << result.err;
  EXPECT_NE(result.err.find(failing.cause), std::string::npos) << result.err;
}

INSTANTIATE_TEST_SUITE_P(
    Ways, ByItself,
    testing::Combine(testing::Values(0, 1, 2),
                     testing::Values(Failing{"throw", "CPU): cannot read x: offset 12 beyond"},
                                     Failing{"exit", "CPU): ended with status 0 before"},
                                     Failing{"abort", "CPU): killed by signal 6 (Aborted)"},
                                     Failing{"renamed", ", GPU 0000:9d:00.0): killed by signal 6"},
                                     Failing{"renamed_stop", ", GPU 0000:9d:00.0): stopped"},
                                     Failing{"loop", "CPU): a step has not ended within"},
                                     Failing{"agreed", "): known to all"})),
    [](const auto& one) {
      return std::string(std::get<1>(one.param).way) + std::to_string(std::get<0>(one.param));
    });

// The step has a name, and what every rank was doing is said.
TEST(StuckInSetUp, EndsAllAndShowsEveryRank) {
  const CommandResult result = run_failing(1, "setup");
  EXPECT_FALSE(result.timed_out) << result.err;
  EXPECT_NE(result.status, 0);
  EXPECT_EQ(n_times(result.err, "weft: rank"), 1u) << result.err;
  EXPECT_TRUE(std::regex_search(
      result.err, std::regex("weft: rank 1 \\(host .*, CPU\\): not done within 2 s: in "
                             "preflight step \"checkpoint\"\n")))
      << result.err;
  for (const char* rank : {"0", "2"})
    EXPECT_TRUE(std::regex_search(
        result.err, std::regex(std::string("  rank ") + rank +
                               " \\(host .*, CPU\\): done with preflight step \"checkpoint\", "
                               "waits for others\n")))
        << result.err;
  EXPECT_TRUE(std::regex_search(
      result.err, std::regex("  rank 1 \\(host .*, CPU\\): in preflight step \"checkpoint\"\n")))
      << result.err;
}

// Its guardian knows no others yet: mpirun ends them, as it did before there were guardians.
TEST(BeforeJoining, MpirunEndsAll) {
  const CommandResult result = run_command({"mpirun", "--oversubscribe", "--bind-to", "none", "-n",
                                            "3", WEFT_GUARDIAN_PROGRAM, "1", "before"},
                                           60);
  EXPECT_FALSE(result.timed_out);
  EXPECT_NE(result.status, 0);
  EXPECT_TRUE(std::regex_search(result.err, std::regex("weft: rank 1 \\(host .*\\): only here")))
      << result.err;
}

// mpirun is told to leave the others alone, so that it is the guardians who end them.
TEST(Unaided, GuardiansEndAll) {
  for (const char* way : {"throw", "exit", "abort"}) {
    const CommandResult result = run_failing(1, way, false);
    EXPECT_FALSE(result.timed_out) << way;
    EXPECT_EQ(n_times(result.err, "weft: rank 1 (host "), 1u) << result.err;
  }
}

// The others may be gone by then: its own guardian says it.
TEST(AfterLeaving, ACrashIsStillSaid) {
  const CommandResult result = run_failing(1, "late");
  EXPECT_FALSE(result.timed_out);
  EXPECT_NE(result.status, 0);
  EXPECT_NE(result.err.find("weft: rank 1 (host "), std::string::npos) << result.err;
  EXPECT_NE(result.err.find("killed by signal 6"), std::string::npos) << result.err;
}

TEST(SomeGuarded, IsRefusedByAll) {
  std::vector<std::string> all = {"mpirun", "--oversubscribe", "--bind-to", "none"};
  const std::vector<std::string> run = {WEFT_BINARY, "run", "--model",  kDemo,
                                        "--pp",      "2",   "--prompt", "x"};
  all.insert(all.end(), {"-n", "1"});
  all.insert(all.end(), run.begin(), run.end());
  all.insert(all.end(), {":", "-n", "1"});
  all.insert(all.end(), run.begin(), run.end());
  all.push_back("--no-guardian");
  const CommandResult result = run_command(all, 60);
  EXPECT_FALSE(result.timed_out) << result.err;
  EXPECT_EQ(result.status, 2) << result.err;
  EXPECT_EQ(n_times(result.err, "give --no-guardian to all ranks or to none"), 1u) << result.err;
}

// Nobody is left to tell, so only the end counts.
TEST(LostLauncher, EndsAllRanks) {
  LongJob job(3);
  ASSERT_TRUE(job.runs());
  EXPECT_EQ(job.processes().size(), 7u) << "a launcher, three ranks, three guardians";
  ASSERT_EQ(kill(job.launcher(), SIGKILL), 0);
  const auto start = Clock::now();
  EXPECT_TRUE(job.nothing_left());
  EXPECT_LT(seconds_since(start), kEndsWithin);
  EXPECT_EQ(job.shared_left(), std::vector<std::string>());
}

void expect_stopped(const LongJob& job, int n) {
  int n_stopped = 0;
  for (const JobProcess& process : job.processes()) n_stopped += process.state == 'T' ? 1 : 0;
  EXPECT_EQ(n_stopped, n);
}

// As Slurm suspends a job: every process of it stops, for longer than anything is waited for.
TEST(Suspended, JobGoesOn) {
  LongJob job(3);
  ASSERT_TRUE(job.runs());
  const auto all = [&](int signal_number) {
    for (const JobProcess& process : job.processes())
      if (process.rank >= 0) kill(process.pid, signal_number);
  };
  all(SIGSTOP);
  sleep(4);
  expect_stopped(job, 6);
  all(SIGCONT);
  sleep(4);
  EXPECT_EQ(job.processes().size(), 7u) << job.finish(1).err;
}

TEST(Suspended, JobGoesOnWhereGuardiansRun) {
  LongJob job(3);
  ASSERT_TRUE(job.runs());
  const auto ranks = [&](int signal_number) {
    for (const JobProcess& process : job.processes())
      if (process.rank >= 0 && !process.guardian) kill(process.pid, signal_number);
  };
  ranks(SIGSTOP);
  sleep(5);
  expect_stopped(job, 3);
  ranks(SIGCONT);
  sleep(4);
  EXPECT_EQ(job.processes().size(), 7u) << job.finish(1).err;
}

// Rank 0's JSON lines and what it says about the rest.
void expect_drained(const CommandResult& result, const std::string& signal_name) {
  EXPECT_FALSE(result.timed_out);
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.err.find("ended early by " + signal_name + ": of 400 prompts"),
            std::string::npos)
      << result.err;
  EXPECT_EQ(n_times(result.out, "\n"), 400u);
  EXPECT_EQ(n_times(result.err, "weft: rank"), 0u) << result.err;
  ASSERT_GT(result.out.size(), 2u);
  const auto last =
      nlohmann::json::parse(result.out.substr(result.out.rfind('\n', result.out.size() - 2) + 1));
  EXPECT_EQ(last["finish_reason"], "abort");
  EXPECT_EQ(last["completion_tokens"], 0);
  EXPECT_TRUE(last["ttft_ms"].is_null());
}

TEST(Drain, Usr1ToMpirunEndsInOrder) {
  LongJob job(3, {"--json", "--drain-s", "4"});
  ASSERT_TRUE(job.runs());
  ASSERT_EQ(kill(job.launcher(), SIGUSR1), 0);
  const auto start = Clock::now();
  expect_drained(job.finish(), "SIGUSR1");
  EXPECT_LT(seconds_since(start), 4.5);
  EXPECT_TRUE(job.nothing_left());
}

// To any rank, and by way of its guardian alone: rank 0 learns of it.
TEST(Drain, TermToOneGuardianEndsInOrder) {
  LongJob job(3, {"--json", "--drain-s", "2"});
  ASSERT_TRUE(job.runs());
  ASSERT_EQ(kill(job.guardian(2), SIGTERM), 0);
  const CommandResult result = job.finish();
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_EQ(n_times(result.out, "\n"), 400u);
}

TEST(Drain, OneProcessEndsInOrder) {
  LongJob job(1, {"--json", "--drain-s", "2"});
  ASSERT_TRUE(job.runs());
  ASSERT_EQ(kill(-job.launcher(), SIGTERM), 0);  // the group: the rank and its guardian
  expect_drained(job.finish(), "SIGTERM");
}

// Also while it loads: half a gigabyte and more of made-up weights take long enough. Where they are
// there already, the job drains as any other does.
TEST(Drain, EndsInOrderWhileLoading) {
  const std::string mark = new_mark();
  Command command({"env",
                   "WEFT_TEST_JOB=" + mark,
                   "mpirun",
                   "--oversubscribe",
                   "--bind-to",
                   "none",
                   "-n",
                   "2",
                   WEFT_BINARY,
                   "run",
                   "--model",
                   WEFT_SOURCE_DIR "/configs/models/deepseek-coder-1.3b.yaml",
                   "--weights",
                   "synthetic:1",
                   "--tp",
                   "2",
                   "--context",
                   "512",
                   "--max-sequences",
                   "1",
                   "--drain-s",
                   "4",
                   "--prompt",
                   "x",
                   "--max-tokens",
                   "400"});
  ASSERT_TRUE(command.says("tokenizer.json", 60));  // its inputs are being looked at
  const pid_t guardian = pid_of(mark, 1, true);
  ASSERT_GT(guardian, 0);
  ASSERT_EQ(kill(guardian, SIGTERM), 0);
  const CommandResult result = command.finish(60);
  EXPECT_FALSE(result.timed_out) << result.err;
  EXPECT_EQ(result.status, 0) << result.err;
  EXPECT_NE(result.err.find("ended early by SIGTERM"), std::string::npos) << result.err;
  EXPECT_EQ(n_times(result.err, "weft: rank"), 0u) << result.err;
}

TEST(Drain, SecondSignalEndsAtOnce) {
  LongJob job(3, {"--drain-s", "60"});
  ASSERT_TRUE(job.runs());
  ASSERT_EQ(kill(job.launcher(), SIGUSR1), 0);
  sleep(1);
  ASSERT_EQ(kill(job.launcher(), SIGUSR1), 0);
  expect_ended(job, Clock::now(), "rank 0 .*ended by a second signal \\(User defined signal 1\\)");
}

}  // namespace
}  // namespace weft::test
