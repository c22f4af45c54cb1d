// Set-up as named steps, each with a time limit of its own: where one does not end, the guardians
// say which, and what every rank was doing.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "parallel/guardian_page.h"
#include "parallel/mpi_session.h"

namespace weft::parallel {

enum class SetupStep : uint8_t {
  none,
  versions,    // the same weft and MPI everywhere
  plan,        // the plan's ranks are the job's, and its text is the same everywhere
  model,       // facts of the model
  inputs,      // weights' headers, tokenizer, prompts
  checkpoint,  // weights can be read, and are the same everywhere
  places,      // each rank at its GPU or cores
  devices,     // one GPU a rank
  memory,      // what the plan needs is there
  groups,      // every communicator
  messages,    // known content over every group and edge
  bandwidth,   // of every edge
};
std::string_view setup_step_name(SetupStep step);

// A step and whether this rank's own part of it is done, as one byte that guardians pass on.
uint8_t activity_of(SetupStep step, bool waits);
bool waits_for_others(uint8_t activity);
// "in preflight step "memory"", "done with preflight step "memory", waits for others".
std::string activity_text(uint8_t activity);

class SetupSteps {
 public:
  // limit_s: of every step, in place of its own; 0: none.
  SetupSteps(const MpiSession& session, const StepWatch& watch,
             std::optional<double> limit_s = std::nullopt)
      : session_(session), watch_(watch), limit_s_(limit_s) {}

  // Runs this rank's part, which does not communicate, then agrees: throws AgreedError on all ranks
  // where one failed. Where a rank is not done in time its guardian ends the job.
  void run(SetupStep step, const std::function<void()>& mine);
  // A step whose ranks talk to each other; `work` itself leaves no rank behind where one fails.
  void together(SetupStep step, const std::function<void()>& work);

 private:
  const MpiSession& session_;
  StepWatch watch_;
  std::optional<double> limit_s_;
};

}  // namespace weft::parallel
