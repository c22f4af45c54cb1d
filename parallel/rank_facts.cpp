// Facts of this process, and comparisons of everybody's.
#include "parallel/rank_facts.h"

#include <link.h>
#include <mpi.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <limits>
#include <map>
#include <sstream>

#include "parallel/rank_text.h"
#include "runtime/base/error.h"
#include "runtime/base/text.h"

namespace weft::parallel {
namespace {

std::string host_name() {
  char name[256] = {};
  return gethostname(name, sizeof(name) - 1) == 0 ? name : "unknown";
}

// The linker's build id of this program: two builds of the same source by the same tools share it.
int find_build_id(dl_phdr_info* object, size_t, void* out) {
  auto& id = *static_cast<std::string*>(out);
  for (int i = 0; i < object->dlpi_phnum; ++i) {
    const auto& header = object->dlpi_phdr[i];
    if (header.p_type != PT_NOTE) continue;
    const auto* at = reinterpret_cast<const unsigned char*>(object->dlpi_addr + header.p_vaddr);
    const auto* end = at + header.p_memsz;
    const auto padded = [](size_t n) { return (n + 3) / 4 * 4; };
    while (at + sizeof(ElfW(Nhdr)) <= end) {
      const auto* note = reinterpret_cast<const ElfW(Nhdr)*>(at);
      const unsigned char* desc = at + sizeof(*note) + padded(note->n_namesz);
      if (note->n_type == NT_GNU_BUILD_ID)
        for (size_t k = 0; k < note->n_descsz; ++k) id += fmt::format("{:02x}", desc[k]);
      at = desc + padded(note->n_descsz);
    }
  }
  return 1;  // the first object is the program
}

std::string mpi_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  if (MPI_Get_library_version(text, &length) != MPI_SUCCESS) return "unknown";
  const std::string whole(text, static_cast<size_t>(length));
  return whole.substr(0, whole.find(", ident"));
}

std::string card_of(const Topology& t, const std::vector<size_t>& cards) {
  for (const size_t card : cards)
    if (!t.cards[card].rdma.empty()) return t.cards[card].rdma.front();
  for (const size_t card : cards)
    if (!t.cards[card].interfaces.empty()) return t.cards[card].interfaces.front();
  return {};
}

void set_place(const Binding& binding, const RankPlace& place, RankFacts& facts) {
  const Topology& t = binding.topology;
  if (place.gpu) {
    const Gpu& gpu = t.gpus[*place.gpu];
    facts.gpu.set(gpu.bus_id);
    facts.gpu_uuid.set(gpu.uuid);
    facts.root.set(t.roots[gpu.root].name);
  }
  facts.numa.set(fmt::format("{}", fmt::join(place.memory_nodes, ",")));
  facts.card.set(card_of(t, place.cards));
  if (binding.kept)
    facts.cpus.set(binding.before.text() + " (as started)");
  else if (place.binds)
    facts.cpus.set(place.cpus.text());
}

// Groups of ranks that say the same; one sentence where there are several.
template <class Text>
void compare(std::span<const RankFacts> all, std::string_view what, Text&& text,
             std::vector<std::string>& problems) {
  std::map<std::string, std::vector<int>> said;
  for (size_t rank = 0; rank < all.size(); ++rank)
    said[text(all[rank])].push_back(static_cast<int>(rank));
  if (said.size() < 2) return;
  std::vector<std::string> parts;
  for (const auto& [value, ranks] : said) {
    std::vector<std::string> names;
    for (const int rank : ranks) {
      const std::string host = all[static_cast<size_t>(rank)].host.get();
      if (std::find(names.begin(), names.end(), host) == names.end()) names.push_back(host);
    }
    parts.push_back(fmt::format("{} ({}): {}", ranks_text(ranks),
                                hosts_text({names.begin(), names.end()}),
                                value.empty() ? "unknown" : value));
  }
  problems.push_back(
      fmt::format("not all ranks have the same {}: {}", what, fmt::join(parts, "; ")));
}

uint64_t number_in(const std::string& path, uint64_t otherwise) {
  std::ifstream file(path);
  uint64_t value = 0;
  return file >> value ? value : otherwise;
}

// "name value" lines of cgroup and kernel files.
uint64_t field_in(const std::string& path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name)) continue;
    uint64_t value = 0;
    std::istringstream(line.substr(name.size())) >> value;
    return value;
  }
  return 0;
}

// Of the container: pages of files go when memory is wanted.
uint64_t container_free_bytes() {
  constexpr uint64_t kNone = std::numeric_limits<uint64_t>::max();
  const std::string folder = "/sys/fs/cgroup/";
  const uint64_t limit = number_in(folder + "memory.max", kNone);
  if (limit == kNone) return kNone;
  const uint64_t used = number_in(folder + "memory.current", 0);
  const uint64_t pages = field_in(folder + "memory.stat", "file ");
  const uint64_t held = used - std::min(used, pages);
  return limit - std::min(limit, held);
}

}  // namespace

uint64_t free_memory_bytes() {
  const uint64_t available = field_in("/proc/meminfo", "MemAvailable:") << 10;
  if (available == 0) throw run_error("/proc/meminfo does not say MemAvailable");
  return std::min(available, container_free_bytes());
}

RankFacts facts_of_process(const MpiSession& session, const std::string& version,
                           const Binding& binding) {
  RankFacts facts;
  facts.node = session.node();
  std::string build;
  dl_iterate_phdr(find_build_id, &build);
  facts.host.set(host_name());
  facts.weft.set(build.empty() ? version : fmt::format("{} build {}", version, build));
  facts.mpi.set(mpi_version());
  facts.host_free = free_memory_bytes();
  facts.share_gpus = binding.options.share_gpus;
  if (binding.place) set_place(binding, *binding.place, facts);
  return facts;
}

std::vector<std::string> version_problems(std::span<const RankFacts> all) {
  std::vector<std::string> problems;
  compare(
      all, "weft", [](const RankFacts& facts) { return facts.weft.get(); }, problems);
  compare(
      all, "MPI", [](const RankFacts& facts) { return facts.mpi.get(); }, problems);
  return problems;
}

std::vector<std::string> device_problems(std::span<const RankFacts> all) {
  std::map<std::string, std::vector<int>> on;
  std::map<std::string, std::string> named;  // of each key, for people
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const std::string bus = all[rank].gpu.get();
    if (bus.empty() || all[rank].share_gpus) continue;
    const std::string uuid = all[rank].gpu_uuid.get();
    const std::string place = fmt::format("GPU {} of host {}", bus, all[rank].host.get());
    const std::string key = uuid.empty() ? fmt::format("{} {}", all[rank].node, bus) : uuid;
    on[key].push_back(static_cast<int>(rank));
    named[key] = place;
  }
  std::vector<std::string> problems;
  for (const auto& [key, ranks] : on)
    if (ranks.size() > 1)
      problems.push_back(
          fmt::format("{} are all on {}: give each rank its own, or let them share "
                      "it with --share-gpus",
                      ranks_text(ranks), named[key]));
  return problems;
}

std::vector<std::string> nccl_problems(std::span<const RankFacts> all) {
  std::vector<std::string> problems;
  if (std::any_of(all.begin(), all.end(),
                  [](const auto& facts) { return facts.nccl.get().empty(); }))
    return problems;
  compare(
      all, "NCCL", [](const RankFacts& facts) { return facts.nccl.get(); }, problems);
  const auto settings = [](const RankFacts& facts) {
    const std::string text = facts.nccl_settings.get();
    return text.empty() ? "none set" : text;
  };
  compare(all, "variables of NCCL", settings, problems);
  std::map<std::string, std::vector<int>> said;
  for (size_t rank = 0; rank < all.size(); ++rank)
    if (const std::string problem = all[rank].nccl_problem.get(); !problem.empty())
      said[fmt::format("host {}: {}", all[rank].host.get(), problem)].push_back(
          static_cast<int>(rank));
  for (const auto& [problem, ranks] : said)
    problems.push_back(fmt::format("{} ({})", problem, ranks_text(ranks)));
  return problems;
}

std::vector<std::string> memory_problems(std::span<const RankFacts> all) {
  struct Host {
    std::string name;
    uint64_t free = std::numeric_limits<uint64_t>::max();
    uint64_t needs = 0;
    std::vector<int> ranks;
  };
  std::map<int32_t, Host> hosts;
  for (size_t rank = 0; rank < all.size(); ++rank) {
    Host& host = hosts[all[rank].node];
    host.name = all[rank].host.get();
    host.free = std::min(host.free, all[rank].host_free);
    host.needs += all[rank].needs;
    host.ranks.push_back(static_cast<int>(rank));
  }
  std::vector<std::string> problems;
  for (const auto& [node, host] : hosts)
    if (host.needs > host.free)
      problems.push_back(fmt::format(
          "host {}: {} need {} together and {} is free: end what holds it, or lower the plan's "
          "limits",
          host.name, ranks_text(host.ranks), human_bytes(host.needs), human_bytes(host.free)));
  return problems;
}

std::string places_text(std::span<const RankFacts> all) {
  using Row = std::vector<std::string>;
  const auto or_dash = [](const std::string& text) { return text.empty() ? "-" : text; };
  std::vector<Row> rows = {{"rank", "host", "device", "root", "NUMA", "CPUs", "card"}};
  for (size_t rank = 0; rank < all.size(); ++rank) {
    const RankFacts& facts = all[rank];
    const std::string gpu = facts.gpu.get();
    const std::string cpus = facts.cpus.get();
    rows.push_back({fmt::format("{}", rank), facts.host.get(),
                    gpu.empty() ? "CPU" : fmt::format("GPU {}", gpu), or_dash(facts.root.get()),
                    or_dash(facts.numa.get()), cpus.empty() ? "not bound" : cpus,
                    or_dash(facts.card.get())});
  }
  std::vector<size_t> widths(rows.front().size());
  for (const Row& row : rows)
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  std::string text;
  for (const Row& row : rows) {
    for (size_t i = 0; i + 1 < row.size(); ++i) text += fmt::format("{:<{}}  ", row[i], widths[i]);
    text += row.back() + "\n";
  }
  return text;
}

}  // namespace weft::parallel
