#include "planner/event_simulation.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <queue>

#include "runtime/base/error.h"

namespace weft::planner {
namespace {

// Stages as a chain of servers; a step's time at each is the sum of what it carries.
class Chain {
 public:
  explicit Chain(const std::vector<StageAndEdge>& stages)
      : stages_(stages), free_at_(stages.size(), 0) {}

  // When a step that enters at `now` has left the last stage. Where `steps` is given, what each
  // stage does is added to it.
  double pass(double now, bool decodes, bool prefills, size_t batch = 0,
              std::vector<StageStep>* steps = nullptr) {
    for (size_t s = 0; s < stages_.size(); ++s) {
      const StageAndEdge& part = stages_[s];
      double work = 0, edge = 0;
      if (decodes) work += part.stage.decode_ms, edge += part.edge.decode_ms;
      if (prefills) work += part.stage.prefill_ms, edge += part.edge.prefill_ms;
      const double begin = std::max(now, free_at_[s]);
      free_at_[s] = begin + work;
      if (steps) steps->push_back({s, batch, decodes, prefills, begin, free_at_[s]});
      now = free_at_[s] + edge;
    }
    return now;
  }

 private:
  const std::vector<StageAndEdge>& stages_;
  std::vector<double> free_at_;
};

struct Request {
  double arrived = 0;
  double first_token = 0;
  size_t chunks_left = 0;
  size_t tokens_left = 0;
};

class Simulation {
 public:
  explicit Simulation(const SimulatedLoad& load)
      : load_(load), chain_(load.stages), members_(load.batches_in_flight) {
    for (size_t i = 0; i < load.sequences; ++i) arrive(0);
  }

  std::vector<StageStep> record(size_t n_passes) {
    start();
    std::vector<StageStep> steps;
    steps_ = &steps;
    while (steps.size() < n_passes * load_.stages.size()) step();
    steps_ = nullptr;
    return steps;
  }

  SimulatedResult run() {
    start();
    const size_t wanted = load_.sequences * load_.rounds;
    while (finished_ < wanted) step();
    SimulatedResult result;
    const double counted = static_cast<double>(finished_ - load_.sequences);
    result.ttft_ms = ttft_sum_ / counted;
    result.tpot_ms = tpot_sum_ / counted;
    result.tokens_per_s =
        counted * static_cast<double>(load_.output_tokens) / (last_end_ - first_round_end_) * 1000;
    return result;
  }

 private:
  using Event = std::pair<double, size_t>;  // time, batch

  void start() {
    for (size_t b = 0; b < load_.batches_in_flight; ++b) ready_.push({0, b});
  }

  void arrive(double now) {
    requests_.push_back({now, 0, load_.prompt_chunks, load_.output_tokens});
    waiting_.push_back(requests_.size() - 1);
  }

  void step() {
    const auto [now, batch] = ready_.top();
    ready_.pop();
    std::vector<size_t>& members = members_[batch];
    const bool prefills = !waiting_.empty() && requests_[waiting_.front()].arrived <= now;
    if (members.empty() && !prefills) return idle_.push_back(batch);
    const double end = chain_.pass(now, !members.empty(), prefills, batch, steps_);
    const size_t before = members.size();
    if (prefills) take_chunk(batch, end);
    finish_tokens(members, before, end);
    ready_.push({end, batch});
    // What ended now is followed by prompts that arrive now: batches without work look again.
    for (const size_t other : idle_) ready_.push({end, other});
    idle_.clear();
  }

  // The oldest prompt's next chunk; after its last the first token is there.
  void take_chunk(size_t batch, double end) {
    Request& request = requests_[waiting_.front()];
    if (--request.chunks_left > 0) return;
    request.first_token = end;
    --request.tokens_left;
    members_[batch].push_back(waiting_.front());
    waiting_.pop_front();
  }

  void finish_tokens(std::vector<size_t>& members, size_t before, double end) {
    std::vector<size_t> kept;
    size_t ended = 0;
    for (size_t i = 0; i < members.size(); ++i) {
      Request& request = requests_[members[i]];
      if (i < before) --request.tokens_left;
      if (request.tokens_left > 0) {
        kept.push_back(members[i]);
        continue;
      }
      count(request, end);
      ++ended;
    }
    members = std::move(kept);
    for (size_t i = 0; i < ended; ++i) arrive(end);
  }

  void count(const Request& request, double end) {
    ++finished_;
    last_end_ = end;
    if (finished_ <= load_.sequences) {
      first_round_end_ = end;
      return;
    }
    ttft_sum_ += request.first_token - request.arrived;
    if (load_.output_tokens > 1)
      tpot_sum_ += (end - request.first_token) / static_cast<double>(load_.output_tokens - 1);
  }

  const SimulatedLoad& load_;
  Chain chain_;
  std::vector<std::vector<size_t>> members_;  // requests that decode, by batch
  std::deque<Request> requests_;
  std::deque<size_t> waiting_;
  std::vector<size_t> idle_;  // batches without work
  std::priority_queue<Event, std::vector<Event>, std::greater<>> ready_;
  std::vector<StageStep>* steps_ = nullptr;  // of record()
  size_t finished_ = 0;
  double ttft_sum_ = 0, tpot_sum_ = 0, first_round_end_ = 0, last_end_ = 0;
};

}  // namespace

SimulatedResult simulate(const SimulatedLoad& load) {
  WEFT_EXPECT(!load.stages.empty() && load.batches_in_flight > 0 && load.sequences > 0);
  WEFT_EXPECT(load.prompt_chunks > 0 && load.output_tokens > 0 && load.rounds > 1);
  return Simulation(load).run();
}

std::vector<StageStep> simulated_steps(const SimulatedLoad& load, size_t n_passes) {
  WEFT_EXPECT(!load.stages.empty() && load.batches_in_flight > 0 && load.sequences > 0);
  WEFT_EXPECT(load.prompt_chunks > 0 && load.output_tokens > 0);
  return Simulation(load).record(n_passes);
}

double simulated_decode_period_ms(const std::vector<StageAndEdge>& stages, size_t batches_in_flight,
                                  size_t steps) {
  Chain chain(stages);
  std::vector<double> back_at(batches_in_flight, 0);
  double begin = 0;
  for (size_t step = 0; step < 2 * steps; ++step) {
    for (double& at : back_at) at = chain.pass(at, true, false);
    if (step + 1 == steps) begin = back_at.front();
  }
  return (back_at.front() - begin) / static_cast<double>(steps);
}

double simulated_prefill_ms(const std::vector<StageAndEdge>& stages, size_t n_chunks) {
  Chain chain(stages);
  double end = 0;
  for (size_t i = 0; i < n_chunks; ++i) end = chain.pass(0, false, true);
  return end;
}

double simulated_handover_ms(const std::vector<StageAndEdge>& stages,
                             const std::vector<double>& handover_ms, size_t n_chunks) {
  WEFT_EXPECT(handover_ms.size() == stages.size());
  Chain chain(stages);
  std::vector<double> sent_at(stages.size(), 0);
  std::vector<StageStep> steps;
  for (size_t i = 0; i < n_chunks; ++i) {
    steps.clear();
    chain.pass(0, false, true, 0, &steps);
    for (size_t s = 0; s < stages.size(); ++s)
      sent_at[s] = std::max(sent_at[s], steps[s].end_ms) + handover_ms[s];
  }
  return *std::max_element(sent_at.begin(), sent_at.end());
}

}  // namespace weft::planner
