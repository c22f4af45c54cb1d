// All that a plan with a cluster rests on: the request, and the costs that the flags, the cluster
// and the profiles make of it.
#pragma once

#include <memory>
#include <string>

#include "launch/plan_options.h"
#include "launch/plan_search.h"
#include "planner/cost_model.h"
#include "planner/search.h"
#include "planner/serving_model.h"

namespace weft::launch {

struct PlanCase {
  planner::SearchRequest request;
  planner::Formats formats;  // as the plan writes them
  bool on_cpu = false;       // the cluster's ranks are weft's on CPUs
  std::string engine;
  std::unique_ptr<planner::CostModel> model;  // times and parts
  std::unique_ptr<planner::StageCosts> host;  // of CPU ranks: memory as their backend allocates it
  std::unique_ptr<planner::ServingModel> serving;

  const planner::StageCosts& costs() const { return host ? *host : *model; }
};

// Reads cluster, workload and profiles; `configs` is the folder of shipped ones. Throws Error with
// what is wrong and what there is.
PlanCase make_case(const SearchOptions& options, const PlanOptions& plan,
                   const planner::ModelSpec& spec, const std::string& configs);
// Of these facts, whatever cluster the options name.
PlanCase make_case_on(const planner::ClusterSpec& cluster, const SearchOptions& options,
                      const PlanOptions& plan, const planner::ModelSpec& spec,
                      const std::string& configs);

// The same case for requests `factor` times as long.
PlanCase scaled_case(const PlanCase& of, double factor);

// Whether a stage's times leave a measured curve.
bool is_extrapolated(const PlanCase& of, const planner::Layout& layout);

}  // namespace weft::launch
