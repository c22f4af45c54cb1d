// How to wait for something that only polling can see, without holding the core. An active peer
// answers within microseconds, an idle one within seconds: the pause between two tries grows with
// the time already waited, so that a late answer is noticed late only in proportion.
#pragma once

#include <cstdint>

namespace weft::parallel {

// while (!ready()) patience.pause();   A new wait starts with a new Patience.
class Patience {
 public:
  // The first tries follow each other at once, then the core is offered to others between tries:
  // for 2 ms while nobody takes it, since waking up from a sleep costs more than a stage of a small
  // model; for 100 µs where somebody does. After that each pause is a sleep of 1/32 of the time
  // waited so far, at least 20 µs and at most 500 µs, or of 1/256 of it, at most 2 ms, where that
  // is longer.
  void pause();

 private:
  int tries_ = 0;
  int64_t started_ns_ = 0;
  bool shared_ = false;  // others want the core too
};

}  // namespace weft::parallel
