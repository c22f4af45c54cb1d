// Names and limits of set-up's steps, and their notes for the guardian.
#include "parallel/setup_steps.h"

#include <fmt/format.h>

#include <array>

namespace weft::parallel {
namespace {

struct StepFacts {
  std::string_view name;
  double limit_s;
};

// Ample: what a crowded file server or a slow start needs, and no healthy step passes.
constexpr std::array<StepFacts, 12> kSteps = {{{"none", 0},
                                               {"versions", 30},
                                               {"plan", 30},
                                               {"model", 60},
                                               {"inputs", 600},
                                               {"checkpoint", 300},
                                               {"places", 60},
                                               {"devices", 30},
                                               {"memory", 30},
                                               {"groups", 60},
                                               {"messages", 60},
                                               {"bandwidth", 120}}};
static_assert(kSteps.size() == static_cast<size_t>(SetupStep::bandwidth) + 1);
constexpr uint8_t kWaits = 0x80;

const StepFacts& facts_of(uint8_t activity) {
  const size_t step = activity & ~kWaits;
  return kSteps[step < kSteps.size() ? step : 0];
}

// Notes a step's begin, and its end however it comes.
class Noted {
 public:
  Noted(StepWatch& watch, SetupStep step, std::optional<double> limit_s) : watch_(watch) {
    watch_.note(activity_of(step, false));
    watch_.set_limit(limit_s.value_or(facts_of(static_cast<uint8_t>(step)).limit_s));
    watch_.begin();
  }
  ~Noted() {
    watch_.end();
    watch_.note(0);
  }
  Noted(const Noted&) = delete;
  Noted& operator=(const Noted&) = delete;

 private:
  StepWatch& watch_;
};

class WaitsAfter {
 public:
  WaitsAfter(StepWatch& watch, SetupStep step) : watch_(watch), step_(step) {}
  ~WaitsAfter() { watch_.note(activity_of(step_, true)); }
  WaitsAfter(const WaitsAfter&) = delete;
  WaitsAfter& operator=(const WaitsAfter&) = delete;

 private:
  StepWatch& watch_;
  SetupStep step_;
};

}  // namespace

std::string_view setup_step_name(SetupStep step) {
  return facts_of(static_cast<uint8_t>(step)).name;
}

uint8_t activity_of(SetupStep step, bool waits) {
  return static_cast<uint8_t>(static_cast<uint8_t>(step) | (waits ? kWaits : 0));
}

bool waits_for_others(uint8_t activity) { return (activity & kWaits) != 0; }

std::string activity_text(uint8_t activity) {
  const std::string_view name = facts_of(activity).name;
  return waits_for_others(activity)
             ? fmt::format("done with preflight step \"{}\", waits for others", name)
             : fmt::format("in preflight step \"{}\"", name);
}

void SetupSteps::run(SetupStep step, const std::function<void()>& mine) {
  const Noted noted(watch_, step, limit_s_);
  agree(session_, [&] {
    const WaitsAfter done(watch_, step);
    mine();
  });
}

void SetupSteps::together(SetupStep step, const std::function<void()>& work) {
  const Noted noted(watch_, step, limit_s_);
  work();
}

}  // namespace weft::parallel
