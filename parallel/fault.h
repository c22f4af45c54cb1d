// Why a job ends before it is done, as guardians pass it on.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace weft::parallel {

// In order of what explains more: where several faults come at once, the highest is the cause and
// the others its consequences (a rank that is killed makes its peers' MPI calls fail).
enum class FaultKind : uint8_t {
  silent = 1,     // no heartbeat from its guardian
  stalled,        // a step past its limit, while waiting
  busy,           // a step past its limit, while computing
  error,          // the rank says why itself
  launcher_lost,  // its launcher's process on that host has ended
  guardian_lost,  // its guardian has ended without a word
  stopped,        // by SIGSTOP, while others run
  died,           // by a signal, or with a status, before the job was done
  asked,          // a second signal
};
constexpr uint8_t kMostFaultKind = static_cast<uint8_t>(FaultKind::asked);

struct Fault {
  FaultKind kind = FaultKind::error;
  int32_t status = 1;  // of every process of the job
  std::string text;    // "killed by signal 9 (Killed)"
};

}  // namespace weft::parallel
