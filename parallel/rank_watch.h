// A guardian's eye on its own rank and on the launcher: deaths, stops, steps that take too long.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>

#include "parallel/fault.h"
#include "parallel/guardian_page.h"

namespace weft::parallel {

class RankWatch {
 public:
  // `launcher` is the process whose end ends the rank, 0 for none: the guardian's parent.
  RankWatch(pid_t rank, pid_t launcher, GuardianPage& page);

  // What is wrong now, if anything. Call it every tick; it looks into /proc twice a second.
  std::optional<Fault> look(int64_t now_ns);
  // Time has passed that nobody could use: the steps' limits start again.
  void rearm(int64_t now_ns) { rearmed_ns_ = now_ns; }

  // The rank's exit status once it has ended in order, after it said that it was leaving.
  std::optional<int> left_with() const { return left_with_; }
  // By itself, with a status (and a word, one hopes) of its own.
  bool exited() const { return exited_; }
  bool stopped() const { return stopped_; }
  // Ends the rank at once and waits for it, for at most two seconds. What it shares with other
  // ranks of the job by name is removed.
  void kill_rank();

 private:
  bool reap();
  void read_proc(int64_t now_ns);
  std::optional<Fault> late_step(int64_t now_ns);
  std::optional<Fault> late_end(int64_t now_ns);

  pid_t rank_;
  pid_t launcher_;
  GuardianPage& page_;
  int64_t rearmed_ns_ = 0;
  int64_t proc_read_ns_ = 0;
  int64_t left_ns_ = 0;  // when it was first seen leaving
  bool reaped_ = false;
  bool exited_ = false;
  int wait_status_ = 0;
  std::optional<int> left_with_;
  bool stopped_ = false;
  bool dumps_core_ = false;
  double cpu_s_ = 0;
  double busy_ = 0;  // of one core, the latest looks counting most
};

}  // namespace weft::parallel
