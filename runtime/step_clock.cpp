#include "runtime/step_clock.h"

#include "parallel/guardian_page.h"

namespace weft::runtime {
namespace {

constexpr size_t kMarksAtFirst = 4096;

}  // namespace

StepClock::StepClock(kernels::CudaStream gpu) : gpu_(gpu), origin_ns_(parallel::monotonic_ns()) {
  marks_.reserve(kMarksAtFirst);
  spans_.reserve(16 * kMarksAtFirst);
}

double StepClock::now_us() const {
  return static_cast<double>(parallel::monotonic_ns() - origin_ns_) * 1e-3;
}

// An event for the mark that was made last, or for the end.
void StepClock::stamp() {
  if (gpu_ == nullptr) return;
  const size_t index = marks_.size();
  if (events_.size() <= index) events_.emplace_back(true);
  events_[index].record(gpu_);
}

void StepClock::mark(StepPart part, int32_t layer) {
  stamp();
  marks_.push_back({part, layer, now_us()});
}

double StepClock::since_first_us(size_t mark) const {
  return events_[mark].ms_since(events_.front()) * 1e3;
}

void StepClock::end(uint64_t batch, bool decodes) {
  stamp();
  if (gpu_ != nullptr) events_[marks_.size()].synchronise();
  const double end_us = now_us();
  for (size_t i = 0; i < marks_.size(); ++i) {
    const bool is_last = i + 1 == marks_.size();
    PartSpan span{marks_[i].us, 0, batch, marks_[i].layer, marks_[i].part, decodes};
    if (gpu_ == nullptr) {
      span.us = (is_last ? end_us : marks_[i + 1].us) - span.begin_us;
    } else {
      span.begin_us = marks_.front().us + since_first_us(i);
      span.us = since_first_us(i + 1) - since_first_us(i);
    }
    spans_.push_back(span);
  }
  marks_.clear();
}

}  // namespace weft::runtime
