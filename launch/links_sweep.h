// What all ranks do at once, size by size: collectives, the ring, exchanges of neighbours.
#pragma once

#include "launch/links_report.h"
#include "launch/links_rig.h"

namespace weft::launch {

// One size: timed, then once more on exact numbers and compared. A collective; every rank gets the
// same row.
SweepRow measure_size(LinkRig& rig, size_t bytes);

}  // namespace weft::launch
