// What each rank tells all others before a job runs, and what must hold of all of it together: the
// quick part of preflight. Pure but for facts_of_process().
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "parallel/binding.h"
#include "parallel/fixed_text.h"

namespace weft::parallel {

struct RankFacts {
  int32_t node = 0;  // number of the host: two may have one name
  FixedText<64> host;
  FixedText<96> weft;      // version and build
  FixedText<256> mpi;      // MPI's word on itself
  FixedText<32> gpu;       // bus id; empty: the rank computes on CPUs
  FixedText<64> gpu_uuid;  // empty: unknown
  FixedText<32> root;      // PCI root complex of the GPU
  FixedText<64> numa;      // NUMA nodes preferred for memory
  FixedText<256> cpus;     // "0-7"; empty: not bound
  FixedText<96> card;      // nearest network card
  uint64_t host_free = 0;  // bytes that the host can still give, to all its ranks
  uint64_t needs = 0;      // bytes of host memory that the plan foresees for this rank
  bool share_gpus = false;
  FixedText<256> nccl;           // version, or why there is none; empty: this rank takes no NCCL
  FixedText<256> nccl_settings;  // the user's variables that all ranks must have alike
  FixedText<768> nccl_problem;   // of variables that name what this host has not; empty: none
};

// Of this process and where it is bound; `needs` is left to the caller. `version` is weft's.
RankFacts facts_of_process(const MpiSession& session, const std::string& version,
                           const Binding& binding);

// One sentence each, empty where all is well. `all` is by rank.
std::vector<std::string> version_problems(std::span<const RankFacts> all);
// Two ranks on one GPU, by UUID or else by host and bus id, unless they may share it.
std::vector<std::string> device_problems(std::span<const RankFacts> all);
// Another NCCL or other settings of it than on other ranks, and names that a host has not; where
// all ranks take NCCL.
std::vector<std::string> nccl_problems(std::span<const RankFacts> all);
// Hosts whose ranks together need more than is free there.
std::vector<std::string> memory_problems(std::span<const RankFacts> all);

// The binding map: "rank host device root NUMA CPUs card", a line each.
std::string places_text(std::span<const RankFacts> all);

// Bytes that this host, or the container, can still give without swapping.
uint64_t free_memory_bytes();

}  // namespace weft::parallel
