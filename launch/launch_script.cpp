// Each launcher's options, with the reason for those that nobody would guess.
#include "launch/launch_script.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cctype>
#include <numeric>
#include <span>
#include <stdexcept>
#include <string_view>

#include "runtime/base/error.h"

namespace weft::launch {
namespace {

using Words = std::vector<std::string>;
using Groups = std::vector<Words>;  // words that stay on one line: a flag and its values

constexpr size_t kWidth = 96;  // of a printed line

void add(Groups& groups, std::initializer_list<std::string> words) { groups.emplace_back(words); }

// The ranks' own command: each flag with what follows it.
void add_command(const Words& command, Groups& groups) {
  add(groups, {command.front()});
  for (const std::string& word : std::span(command).subspan(1)) {
    const bool is_value = (word.empty() || word.front() != '-') && groups.back().size() == 1 &&
                          groups.back().front().starts_with("--");
    if (is_value)
      groups.back().push_back(word);
    else
      add(groups, {word});
  }
}

bool even(const std::vector<size_t>& on_nodes) {
  return std::all_of(on_nodes.begin(), on_nodes.end(),
                     [&](size_t n) { return n == on_nodes.front(); });
}

size_t n_ranks(const std::vector<size_t>& on_nodes) {
  return std::accumulate(on_nodes.begin(), on_nodes.end(), size_t{0});
}

void check_slots(const LaunchRequest& request, const std::vector<size_t>& on_nodes) {
  const std::vector<HostSlots>& hosts = request.hosts;
  size_t slots = 0;
  for (const HostSlots& host : hosts) slots += host.slots;
  if (slots < n_ranks(on_nodes) || hosts.size() < on_nodes.size())
    throw input_error("{} has {} slots on {} hosts and the plan needs {} ranks on {}",
                      request.hostfile, slots, hosts.size(), n_ranks(on_nodes), on_nodes.size());
  for (size_t node = 0; node < on_nodes.size(); ++node)
    if (hosts[node].slots < on_nodes[node])
      throw input_error(
          "{}: host {} has {} slots and node {} of the plan {} ranks: give it more, or put a "
          "larger host in its place",
          request.hostfile, hosts[node].name, hosts[node].slots, node, on_nodes[node]);
}

// Where an mpirun of its own, not one within an allocation, starts what.
void add_hosts(const LaunchRequest& request, const std::vector<size_t>& on_nodes, Groups& words) {
  if (!request.hosts.empty()) {
    check_slots(request, on_nodes);
    Words hosts;
    for (size_t node = 0; node < on_nodes.size(); ++node)
      hosts.push_back(fmt::format("{}:{}", request.hosts[node].name, on_nodes[node]));
    add(words, {"--host", fmt::format("{}", fmt::join(hosts, ","))});
    add(words, {"--map-by", "slot"});
    return;
  }
  if (on_nodes.size() == 1 && !request.nodes) {
    add(words, {"--host", fmt::format("localhost:{}", on_nodes.front())});
    add(words, {"--map-by", "slot"});
    return;
  }
  if (!even(on_nodes))
    throw input_error("the plan's nodes have {} ranks: mpirun needs --hostfile to tell them apart",
                      fmt::join(on_nodes, ", "));
  add(words, {"--map-by", fmt::format("ppr:{}:node", on_nodes.front())});
}

// A daemon that is lost without a word is noticed after 5 s, not after hours.
void add_keepalive(const LaunchRequest& request, Groups& words) {
  const bool old = request.mpi_version < 5;
  const std::string flag = old ? "--mca" : "--prtemca";
  const std::string name = "oob_tcp_keepalive_";
  add(words, {flag, name + "time", "2"});
  add(words, {flag, name + "intvl", "1"});
  add(words, {flag, name + "probes", "3"});
}

void add_network(const LaunchRequest& request, Groups& words) {
  if (!request.nics.empty()) {
    const std::string nics = fmt::format("{}", fmt::join(request.nics, ","));
    const bool old = request.mpi_version < 5;
    add(words, {old ? "--mca" : "--prtemca", old ? "oob_tcp_if_include" : "prte_if_include", nics});
    add(words, {"--mca", "btl_tcp_if_include", nics});
    if (!request.cards.empty()) return;
    add(words, {"--mca", "pml", "ob1"});
    add(words, {"--mca", "btl", old ? "self,vader,tcp" : "self,sm,tcp"});
  }
}

bool is_network(const std::string& nic) { return nic.find('/') != std::string::npos; }

// For NCCL and UCX; as NAME=VALUE.
Words variables(const LaunchRequest& request) {
  Words found;
  Words names;
  for (const std::string& nic : request.nics)
    if (!is_network(nic)) names.push_back(nic);
  if (!names.empty()) found.push_back(fmt::format("NCCL_SOCKET_IFNAME=={}", fmt::join(names, ",")));
  if (request.cards.empty()) return found;
  Words ports;
  for (const std::string& card : request.cards) ports.push_back(card + ":1");
  found.push_back(fmt::format("NCCL_IB_HCA=={}", fmt::join(request.cards, ",")));
  found.push_back(fmt::format("UCX_NET_DEVICES={}", fmt::join(ports, ",")));
  return found;
}

// The same for ranks that srun starts: MPI reads them from the environment.
Words slurm_variables(const LaunchRequest& request) {
  Words found = variables(request);
  if (request.nics.empty()) return found;
  const bool old = request.mpi_version < 5;
  found.push_back(fmt::format("OMPI_MCA_btl_tcp_if_include={}", fmt::join(request.nics, ",")));
  if (request.cards.empty()) {
    found.push_back("OMPI_MCA_pml=ob1");
    found.push_back(fmt::format("OMPI_MCA_btl={}", old ? "self,vader,tcp" : "self,sm,tcp"));
  }
  return found;
}

Groups mpirun_words(const LaunchRequest& request, const std::vector<size_t>& on_nodes) {
  Groups words = {{"mpirun", "-n", std::to_string(n_ranks(on_nodes))}};
  add_hosts(request, on_nodes, words);
  add(words, {"--bind-to", "none"});  // ranks bind themselves, each beside its GPU
  add_keepalive(request, words);
  add_network(request, words);
  for (const std::string& variable : variables(request)) add(words, {"-x", variable});
  add_command(request.command, words);
  return words;
}

void check_even(const std::vector<size_t>& on_nodes) {
  if (even(on_nodes)) return;
  throw input_error(
      "the plan's nodes have {} ranks: Slurm starts equally many on each; plan for nodes alike, or "
      "use mpirun with a hostfile",
      fmt::join(on_nodes, ", "));
}

// -K1: a task that fails ends the step. --mem-bind, --cpu-bind, --gpu-bind none: every rank sees
// its whole node, and weft places it.
Groups srun_words(const LaunchRequest& request, const std::vector<size_t>& on_nodes) {
  check_even(on_nodes);
  Groups words = {{"srun", "--mpi=pmix", "-K1", "--exclusive"},
                  {fmt::format("-N{}", on_nodes.size())},
                  {fmt::format("--ntasks-per-node={}", on_nodes.front())}};
  if (request.cores) add(words, {fmt::format("-c{}", *request.cores)});
  if (request.gpus_per_node > 0)
    add(words, {fmt::format("--gpus-per-node={}", request.gpus_per_node)});
  add(words, {"--cpu-bind=none"});
  add(words, {"--mem-bind=none"});
  if (request.gpus_per_node > 0) add(words, {"--gpu-bind=none"});
  add_command(request.command, words);
  return words;
}

// As a shell reads them; lines end before they are too long.
std::string command_text(const Groups& groups) {
  std::string text, line;
  for (const Words& words : groups) {
    Words quoted;
    for (const std::string& word : words) quoted.push_back(shell_word(word));
    const std::string group = fmt::format("{}", fmt::join(quoted, " "));
    if (!line.empty() && line.size() + group.size() + 3 > kWidth) {
      text += line + " \\\n";
      line = "   ";
    }
    line += (line.empty() ? "" : " ") + group;
  }
  return text + line + "\n";
}

std::string exports(const Words& variables) {
  std::string text;
  for (const std::string& variable : variables) {
    const size_t equals = variable.find('=');
    text += fmt::format("export {}={}\n", variable.substr(0, equals),
                        shell_word(variable.substr(equals + 1)));
  }
  return text;
}

std::string sbatch_text(const planner::Plan& plan, const LaunchRequest& request,
                        const std::vector<size_t>& on_nodes) {
  const Groups step = srun_words(request, on_nodes);
  std::string text = fmt::format(
      "#!/bin/bash\n# {} on {} nodes of {} ranks: submit with sbatch\n#SBATCH --job-name=weft\n"
      "#SBATCH --nodes={}\n#SBATCH --ntasks-per-node={}\n#SBATCH --exclusive\n",
      layout_text(plan), on_nodes.size(), on_nodes.front(), on_nodes.size(), on_nodes.front());
  if (request.cores) text += fmt::format("#SBATCH --cpus-per-task={}\n", *request.cores);
  if (request.gpus_per_node > 0)
    text += fmt::format("#SBATCH --gpus-per-node={}\n", request.gpus_per_node);
  if (!request.time.empty()) text += fmt::format("#SBATCH --time={}\n", request.time);
  if (!request.partition.empty())
    text += fmt::format("#SBATCH --partition={}\n", request.partition);
  if (const size_t n = plan.replicas.front().count; n > 1)
    text += fmt::format("#SBATCH --array=0-{}  # a job for each of the plan's replicas\n", n - 1);
  // To the steps, a minute before the limit: weft ends in order then.
  text += "#SBATCH --signal=TERM@60\n\n";
  text += exports(slurm_variables(request));
  return text + "exec " + command_text(step);
}

}  // namespace

std::string shell_word(const std::string& text) {
  const auto plain = [](unsigned char c) {
    return std::isalnum(c) != 0 ||
           std::string_view("@%_+=:,./-").find(static_cast<char>(c)) != std::string_view::npos;
  };
  if (!text.empty() && std::all_of(text.begin(), text.end(), plain)) return text;
  std::string quoted = "'";
  for (const char c : text) quoted += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return quoted + "'";
}

std::vector<size_t> ranks_on_nodes(const planner::Plan& plan, std::optional<size_t> nodes) {
  std::vector<size_t> on_nodes;
  std::vector<size_t> numbers;  // the plan's, in order of appearance
  for (const planner::Stage& stage : plan.replicas.front().stages)
    for (const planner::Slot& slot : stage.slots) {
      if (numbers.empty() || numbers.back() != slot.node) {
        if (std::find(numbers.begin(), numbers.end(), slot.node) != numbers.end())
          throw input_error(
              "the plan comes back to node {} after others: a launcher fills node "
              "after node, so put its ranks beside each other",
              slot.node);
        numbers.push_back(slot.node);
        on_nodes.push_back(0);
      }
      ++on_nodes.back();
    }
  const size_t n = world_size(plan);
  if (n_ranks(on_nodes) != n)
    throw input_error("the plan has {} slots for {} ranks", n_ranks(on_nodes), n);
  if (!nodes || *nodes == on_nodes.size()) return on_nodes;
  // A layout given by hand says nothing of nodes; one that was searched counts on them.
  if (plan.cluster != "manual")
    throw input_error("the plan is for {} nodes of cluster {}, not {}", on_nodes.size(),
                      plan.cluster, *nodes);
  if (n % *nodes != 0)
    throw input_error("{} ranks can't be shared out evenly over {} nodes", n, *nodes);
  return std::vector<size_t>(*nodes, n / *nodes);
}

std::string launch_text(const planner::Plan& plan, const LaunchRequest& request) {
  const std::vector<size_t> on_nodes = ranks_on_nodes(plan, request.nodes);
  switch (request.launcher) {
    case Launcher::mpirun:
      return command_text(mpirun_words(request, on_nodes));
    case Launcher::srun: {
      Groups words;
      for (const std::string& variable : slurm_variables(request)) add(words, {variable});
      if (!words.empty()) words.front().insert(words.front().begin(), "env");
      for (const Words& group : srun_words(request, on_nodes)) words.push_back(group);
      return command_text(words);
    }
    case Launcher::sbatch:
      return sbatch_text(plan, request, on_nodes);
  }
  throw std::logic_error("no such launcher");
}

}  // namespace weft::launch
