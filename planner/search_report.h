// What the search says beside its winner: why layouts were refused, with numbers and what would
// make them fit, and why the winner beats the runner-up.
#pragma once

#include "planner/uniform_layouts.h"

namespace weft::planner {

// Widths that the model's heads or the nodes forbid.
void refuse_widths(const SearchRequest& request, const Space& space, std::vector<Refusal>& refused);

// Families without room for one sequence, or for all that a replica is asked to hold.
void refuse_memory(const Space& space, StageTables& tables, const StageCosts& costs,
                   std::vector<Refusal>& refused);

// Families that miss the limits at their nearest; `closest` is a sweep under Goal::closest.
void refuse_slow(const Scorer& scorer, const Workload& workload,
                 const std::vector<SweptLayout>& closest, std::vector<Refusal>& refused);

std::string verdict_text(const Workload& workload, const SearchResult& result);

// "TP 4 x PP 2": what layouts of one family have in common: widths, expert shares, roles.
std::string family_text(const Layout& layout);

// Throws Error with every reason why a layout given by hand is none of this model and cluster.
void check_layout(const Space& space, const SearchRequest& request, const Layout& layout);

}  // namespace weft::planner
