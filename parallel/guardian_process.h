// The guardian: one loop that watches its rank, hears the other guardians, and ends the rank.
#pragma once

#include <sys/types.h>

#include "parallel/guardian_page.h"

namespace weft::parallel {

// Runs until the rank has ended, and returns the status to end with. `control` is the guardian's
// end of the socket to its rank; `launcher` as in RankWatch.
int run_guardian(pid_t rank, pid_t launcher, int control, GuardianPage& page);

}  // namespace weft::parallel
