// `weft run` on one rank: set-up in steps that all ranks agree on, then prompts to completions.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "launch/completion.h"
#include "launch/device_choice.h"
#include "launch/preflight.h"
#include "launch/problems.h"
#include "launch/rank_process.h"
#include "launch/run_options.h"
#include "planner/plan.h"
#include "runtime/engine.h"

namespace weft::launch {

class Job {
 public:
  Job(RankProcess& process, const RunOptions& options);

  // All of it; rank 0 prints. A collective of all ranks.
  void run();

 private:
  bool leads() const { return session_.rank() == 0; }
  void set_up();
  void check_everything();
  void prepare_prompts(Problems& problems);
  runtime::ResultShape result_shape() const;
  void check_results_size(Problems& problems) const;
  void add_prompt(Prompt prompt, Problems& problems);
  void take_device();
  void prove();
  void start_engine();
  void answer();
  runtime::FinishReason take_token(size_t sequence, const runtime::TokenResults& results,
                                   size_t row);
  void print_finished();
  void show_piece(const std::string& piece) const;
  void print(const Completion& completion, size_t index) const;
  void finish();
  void write_logits() const;
  void report_load() const;
  void report_stages();

  RankProcess& process_;
  const parallel::MpiSession& session_;
  parallel::Guardian& guardian_;
  const RunOptions& options_;
  Preflight preflight_;
  Device device_;
  planner::ModelSpec spec_;
  size_t rank_memory_bytes_ = 0;  // of the rank that has least
  planner::Plan plan_;
  std::unique_ptr<runtime::TensorSource> source_;
  std::unique_ptr<runtime::Tokenizer> tokenizer_;  // rank 0
  std::vector<int32_t> eos_ids_;
  std::vector<Completion> completions_;  // rank 0
  RunReport report_;                     // rank 0
  size_t n_printed_ = 0;                 // of them, the first ones
  std::unique_ptr<runtime::Scheduler> scheduler_;
  std::unique_ptr<runtime::Engine> engine_;
};

}  // namespace weft::launch
