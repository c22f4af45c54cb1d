// Times of messages between ranks, as weft's pipeline and tensor-parallel groups send them: after
// each side has computed for a while, so that waking up is part of them.
#pragma once

#include <optional>

#include "launch/calibrate_rig.h"
#include "planner/machine_profile.h"

namespace weft::launch {

// Sums over the rig's ranks; sizes are those of activations in two bytes, whose sums travel as
// float32. A collective of them.
planner::MessageCurve time_all_reduce(const Rig& rig);

// From rank 0 to another rank and back, half of it. A collective of all ranks of the world; ranks
// other than these two get an empty curve.
planner::MessageCurve time_send_recv(const parallel::MpiSession& session, int other,
                                     kernels::Stream& stream, bool quick);

// The lowest rank on another host than rank 0's; none where there is one host.
std::optional<int> first_rank_elsewhere(const parallel::MpiSession& session);

}  // namespace weft::launch
