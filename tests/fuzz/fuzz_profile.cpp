// Machine profiles, engine profiles and tables of measured rows as texts. The first byte says
// which: H, E or R. What is accepted is written and read back exactly, and prices kernels in finite
// times.
#include <cmath>

#include "planner/engine_profile.h"
#include "planner/kernel_cost.h"
#include "planner/machine_profile.h"
#include "planner/measured_rows.h"
#include "tests/fuzz/fuzz.h"

namespace weft::fuzz {
namespace {

using namespace planner;

void expect_time(const Estimate& estimate) {
  FUZZ_EXPECT(std::isfinite(estimate.us) && estimate.us >= 0);
}

void expect_prices(const MachineProfile& machine) {
  for (const size_t size : {1, 31, 512, 100'000}) {
    expect_time(product_us(machine, NumberFormat::bf16, size, size, 4096, size % 7 + 1));
    expect_time(decode_attention_us(machine, NumberFormat::bf16, NumberFormat::bf16, size, 1000.5,
                                    {8, 2, 128}, 2));
    expect_time(prefill_attention_us(machine, static_cast<double>(size), 0, {8, 2, 128}));
    const double bytes = 1000.0 * static_cast<double>(size);
    if (!machine.all_reduce.empty()) expect_time(all_reduce_us(machine, 3, bytes));
    if (!machine.send_recv_inside.empty()) expect_time(send_recv_us(machine, {}, false, bytes));
    if (!machine.send_recv_across.empty()) expect_time(send_recv_us(machine, {25, 5}, true, bytes));
  }
}

// A base would be another file: there is none in that folder.
void fuzz_machine(std::string_view text) {
  const MachineProfile machine = parse_machine_profile(text, "fuzz", "/no/such/folder");
  FUZZ_EXPECT(machine.base.empty());
  FUZZ_EXPECT(parse_machine_profile(to_yaml(machine, "a\ncomment"), "written", ".") == machine);
  expect_prices(machine);
}

void fuzz_engine(std::string_view text) {
  const EngineProfile engine = parse_engine_profile(text, "fuzz");
  FUZZ_EXPECT(parse_engine_profile(to_yaml(engine), "written") == engine);
  habits_of(engine, "1.2.3");
}

void fuzz_rows(std::string_view text) {
  for (const MeasuredRow& row : parse_measured_rows(text, "fuzz")) {
    FUZZ_EXPECT(row.line > 1 && gpus_of(row) > 0);
    FUZZ_EXPECT(std::isfinite(tokens_per_s(row)) && tokens_per_s(row) >= 0);
  }
}

}  // namespace
}  // namespace weft::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t n) {
  using namespace weft::fuzz;
  return run_kind({{'H', fuzz_machine}, {'E', fuzz_engine}, {'R', fuzz_rows}}, data, n);
}
