// The launchers' variables. mpirun within a Slurm allocation leaves both kinds: its own come first.
#include "parallel/launch_place.h"

#include <charconv>

#include "runtime/base/text.h"

namespace weft::parallel {
namespace {

struct Variables {
  const char* launcher;
  const char* rank;
  const char* size;
};
constexpr Variables kVariables[] = {
    {"Open MPI", "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"},
    {"MVAPICH", "MV2_COMM_WORLD_LOCAL_RANK", "MV2_COMM_WORLD_LOCAL_SIZE"},
    {"Hydra", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"},
    {"PMI", "PMI_LOCAL_RANK", "PMI_LOCAL_SIZE"},
};
constexpr size_t kMostRanks = 1 << 20;

std::optional<size_t> number(std::string_view text) {
  size_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (text.empty() || error != std::errc() || stop != end || value > kMostRanks)
    return std::nullopt;
  return value;
}

std::optional<size_t> number(const char* text) {
  return text == nullptr ? std::nullopt : number(std::string_view(text));
}

std::optional<LaunchPlace> checked(std::optional<size_t> rank, std::optional<size_t> size,
                                   const char* launcher) {
  if (!rank || !size || *rank >= *size) return std::nullopt;
  return LaunchPlace{*rank, *size, launcher, false};
}

}  // namespace

std::optional<size_t> slurm_tasks_of(std::string_view list, size_t node) {
  for (const std::string& part : split(list, ',')) {
    const size_t times = part.find("(x");
    const std::optional<size_t> tasks = number(std::string_view(part).substr(0, times));
    std::optional<size_t> n_nodes = 1;
    if (times != std::string::npos) {
      if (part.back() != ')') return std::nullopt;
      n_nodes = number(std::string_view(part).substr(times + 2, part.size() - times - 3));
    }
    if (!tasks || !n_nodes) return std::nullopt;
    if (node < *n_nodes) return tasks;
    node -= *n_nodes;
  }
  return std::nullopt;
}

std::optional<LaunchPlace> launch_place(const Environment& environment) {
  for (const Variables& names : kVariables) {
    if (environment(names.rank) == nullptr) continue;
    auto place =
        checked(number(environment(names.rank)), number(environment(names.size)), names.launcher);
    const char* policy = environment("OMPI_MCA_hwloc_base_binding_policy");
    if (place && policy != nullptr) place->asked_unbound = std::string_view(policy) == "none";
    return place;
  }
  const char* tasks = environment("SLURM_STEP_TASKS_PER_NODE");
  const std::optional<size_t> node = number(environment("SLURM_NODEID"));
  if (tasks == nullptr || !node) return std::nullopt;
  return checked(number(environment("SLURM_LOCALID")), slurm_tasks_of(tasks, *node), "Slurm");
}

}  // namespace weft::parallel
