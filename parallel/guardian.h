// The guardian beside each rank, as the rank sees it. The process that the launcher started stays
// as the guardian, without MPI, CUDA or threads, and the rank is its child: so the guardian learns
// how the rank ended, the launcher learns it last, and a guardian that dies takes its rank along
// (PR_SET_PDEATHSIG). Guardians hear each other over TCP, whatever MPI and the launcher do.
#pragma once

#include <string>

#include "parallel/guardian_page.h"
#include "parallel/mpi_session.h"

namespace weft::parallel {

class Guardian {
 public:
  // None: failures end the job as the launcher sees fit. Signals are not counted.
  Guardian() = default;
  // Forks; returns in the rank. Call it before MPI_Init and before any thread: the guardian is the
  // caller, and ends inside. Where a launcher started it, the launcher's end ends the rank too.
  // Throws Error where the system refuses.
  static Guardian start();
  ~Guardian();
  Guardian(Guardian&& other) noexcept;
  Guardian& operator=(Guardian&&) = delete;

  explicit operator bool() const { return page_ != nullptr; }

  // Introduces the guardians of all ranks to each other. `device` is what the rank runs on, as it
  // is named in errors ("CPU", "GPU 0000:9d:00.0"). A collective of all ranks, those without a
  // guardian too; throws AgreedError where only some have one, or one can't be reached.
  void join(const MpiSession& session, const std::string& device);

  // The device is another one than join() was told: a rank knows its GPU for certain only once the
  // ranks of its host have met. Not a collective. Throws Error where the guardian does not answer.
  void rename(const std::string& device);

  // For the loop that runs steps.
  StepWatch watch() const { return StepWatch(page_); }
  // How long a drain may take once it was asked for; the guardian ends what is not done 5 s later.
  void set_drain_grace(double grace_s);

  // The rank can't go on: its guardian tells rank 0's, which says it, and every rank is ended.
  [[noreturn]] void fail(const std::string& what, int status);
  // From here on the rank may exit, with any status.
  void leave();

 private:
  Guardian(GuardianPage* page, int control) : page_(page), control_(control) {}

  GuardianPage* page_ = nullptr;
  int control_ = -1;
  int rank_ = -1;  // once joined
  std::string device_;
};

}  // namespace weft::parallel
