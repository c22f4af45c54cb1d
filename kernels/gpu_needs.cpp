#include "kernels/gpu_needs.h"

namespace weft::kernels {
namespace {

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

}  // namespace

std::string driver_problem(int runs, int needs) {
  if (runs <= 0) return "the GPU driver is missing: weft needs one for CUDA " + version_text(needs);
  return "the GPU driver is too old: it runs CUDA " + version_text(runs) +
         " at most, and weft needs " + version_text(needs) + "; update it, or use --backend cpu";
}

bool runs_on(std::span<const std::string> built, int major, int minor) {
  const std::string family = std::to_string(major) + ".";
  const std::string exact = family + std::to_string(minor);
  for (const std::string& code : built) {
    if (code.empty()) continue;
    const bool is_specific = code.back() < '0' || code.back() > '9';
    if (is_specific && code.substr(0, code.size() - 1) == exact) return true;
    if (!is_specific && code.starts_with(family) && std::stoi(code.substr(family.size())) <= minor)
      return true;
  }
  return false;
}

}  // namespace weft::kernels
