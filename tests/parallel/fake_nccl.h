// What a test tells the library that stands for NCCL, and reads from it: its variable `fake_nccl`.
#pragma once

#include <atomic>

struct FakeNccl {
  int version = 22809;
  bool never_ready = false;   // the start stays in progress
  int looks_until_ready = 3;  // else how often it must be asked
  int async_error = 0;        // what it says once it is ready
  int call_status = 0;        // of every collective
  int n_finalized = 0;
  int n_destroyed = 0;
  std::atomic<int> n_aborted = 0;
  std::atomic<bool> has_graphs = false;  // neither end nor abort completes before they are gone
  bool blocking = true;                  // as the start's configuration had it

  void reset() {
    version = 22809;
    never_ready = false;
    looks_until_ready = 3;
    async_error = call_status = n_finalized = n_destroyed = 0;
    n_aborted = 0;
    has_graphs = false;
    blocking = true;
  }
};
