// A job in which one rank fails in a given way while the others wait for it for ever: only its
// guardians can end it. usage: guardian_program RANK WAY
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <string>

#include "parallel/guardian.h"
#include "parallel/setup_steps.h"
#include "runtime/base/error.h"

namespace {

using weft::parallel::Guardian;
using weft::parallel::MpiSession;

constexpr double kLimitS = 2;

[[noreturn]] void loop_for_ever() {
  for (std::atomic<unsigned> n{0};;) {
    n.fetch_add(1);
  }
}

// Ways to fail once all ranks know each other.
void fail(const std::string& way, Guardian& guardian) {
  if (way == "throw") throw weft::input_error("cannot read x: offset 12 beyond end 8");
  if (way == "exit") std::_Exit(0);
  if (way == "abort" || way == "renamed") std::abort();
  if (way == "renamed_stop") raise(SIGSTOP);
  weft::parallel::StepWatch steps = guardian.watch();
  steps.set_limit(kLimitS);
  steps.begin();
  if (way == "loop") loop_for_ever();
}

// A rank whose part of a set-up step does not end.
void get_stuck_in_set_up(const MpiSession& session, const Guardian& guardian, bool stuck) {
  weft::parallel::SetupSteps steps(session, guardian.watch(), kLimitS);
  steps.run(weft::parallel::SetupStep::versions, [] {});
  steps.run(weft::parallel::SetupStep::checkpoint, [&] {
    while (stuck) pause();
  });
}

void wait_for(const MpiSession& session, int rank) {
  int never = 0;
  MPI_Request request = MPI_REQUEST_NULL;
  weft::parallel::check(MPI_Irecv(&never, 1, MPI_INT, rank, 0, session.world(), &request),
                        "MPI_Irecv");
  weft::parallel::wait_gently(&request);
}

void run(int failing, const std::string& way) {
  Guardian guardian = Guardian::start();
  MpiSession session(nullptr, nullptr);
  const bool fails = session.rank() == failing;
  try {
    if (fails && way == "before") throw weft::run_error("only here, before the ranks are joined");
    guardian.join(session, way.starts_with("renamed") ? "GPU guessed" : "CPU");
    if (way.starts_with("renamed")) guardian.rename("GPU 0000:9d:00.0");
    weft::parallel::agree(session, [&] {
      if (fails && way == "agreed") throw weft::input_error("known to all");
    });
    if (way == "setup") get_stuck_in_set_up(session, guardian, fails);
    if (fails && way != "late") fail(way, guardian);
    weft::parallel::StepWatch steps = guardian.watch();
    steps.set_limit(kLimitS);
    if (way == "loop") steps.begin();
    if (way != "late" && !fails) wait_for(session, failing);
  } catch (const weft::parallel::AgreedError& error) {
    guardian.leave();
    if (session.rank() == 0) std::fprintf(stderr, "weft: %s\n", error.what());
    session.close();
    std::exit(error.status());
  } catch (const weft::Error& error) {
    guardian.fail(error.what(), error.status());
  }
  guardian.leave();
  session.close();
  if (fails) std::abort();  // after MPI's end
}

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 64;
  run(std::atoi(argv[1]), argv[2]);
  return 0;
}
