// What the current GPU can do at most, measured: the limits that other measurements stand beside.
#pragma once

namespace weft::launch {

struct Ceilings {
  double read_bytes_per_s = 0;  // of its memory, by a kernel that does nothing else
  double flops_per_s = 0;       // of a large product of random bf16 numbers; 0: no cuBLASLt here
};

// Takes up to 8 GiB of the GPU's memory for a moment.
Ceilings measure_ceilings();
// Its first part alone.
double measure_read_rate();

}  // namespace weft::launch
