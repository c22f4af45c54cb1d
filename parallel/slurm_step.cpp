// The step's number from Slurm's variables; scancel does the rest.
#include "parallel/slurm_step.h"

#include <spawn.h>

#include <algorithm>
#include <cstdlib>
#include <string_view>

extern char** environ;

namespace weft::parallel {
namespace {

bool is_number(const char* text) {
  const std::string_view digits = text == nullptr ? "" : text;
  return !digits.empty() && digits.size() < 12 &&
         std::all_of(digits.begin(), digits.end(), [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::optional<std::string> slurm_step(const Environment& environment) {
  if (environment("OMPI_COMM_WORLD_RANK") || environment("SLURM_LOCALID") == nullptr)
    return std::nullopt;
  const char* job = environment("SLURM_JOB_ID");
  const char* step = environment("SLURM_STEP_ID");
  if (!is_number(job) || !is_number(step)) return std::nullopt;
  return std::string(job) + "." + step;
}

void end_slurm_step() {
  std::optional<std::string> step = slurm_step([](const char* name) { return std::getenv(name); });
  if (!step) return;
  std::string command = "scancel", signal = "--signal=KILL";
  char* arguments[] = {command.data(), signal.data(), step->data(), nullptr};
  pid_t ignored = 0;
  (void)posix_spawnp(&ignored, "scancel", nullptr, nullptr, arguments, environ);
}

}  // namespace weft::parallel
