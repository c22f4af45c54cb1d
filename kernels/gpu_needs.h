// What a build needs of a driver and a GPU, apart from the machine that is asked.
#pragma once

#include <span>
#include <string>

namespace weft::kernels {

// CUDA versions as CUDA has them: 13000 is 13.0. `runs`: the newest that the driver runs, 0 where
// there is none. Says what is there and what is needed.
std::string driver_problem(int runs, int needs);

// Whether code for one of the capabilities runs on compute capability major.minor: "9.0a" is code
// for 9.0 alone, "8.0" runs on 8.6 too, not the other way round.
bool runs_on(std::span<const std::string> built, int major, int minor);

}  // namespace weft::kernels
