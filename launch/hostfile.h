// mpirun's hostfiles: "name slots=N" a line.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace weft::launch {

struct HostSlots {
  std::string name;
  size_t slots = 0;
};

// In the file's order; lines of one host are added up. Throws Error with file and line: no slots=,
// a number that isn't one, a word that mpirun doesn't know there.
std::vector<HostSlots> parse_hostfile(std::string_view text, const std::string& where);

}  // namespace weft::launch
