// What every fuzzer shares: the parsers may refuse an input with weft::Error, and nothing else may
// leave them; what they accept must keep its promises.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>
#include <string_view>

#include "runtime/base/error.h"

// A promise about an accepted input. Not assert: it holds in every build.
#define FUZZ_EXPECT(condition) \
  ((condition) ? (void)0 : ::weft::fuzz::broken_promise(#condition, __FILE__, __LINE__))

namespace weft::fuzz {

[[noreturn]] inline void broken_promise(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "%s:%d: broken promise: %s\n", file, line, condition);
  std::abort();
}

// With FUZZ_STRICT set (run_fuzzer, on seeds that are valid) a refusal is a failure too.
template <class F>
void may_refuse(F&& f) {
  static const bool strict = std::getenv("FUZZ_STRICT") != nullptr;
  try {
    f();
  } catch (const Error& error) {
    if (!strict) return;
    std::fprintf(stderr, "a valid seed is refused: %s\n", error.what());
    std::abort();
  }
}

// A kind of input: its first byte, and what takes the rest.
struct Kind {
  char first;
  void (*take)(std::string_view rest);
};

// The body of every entry point. -1: an input of no kind, not to be kept.
inline int run_kind(std::initializer_list<Kind> kinds, const uint8_t* data, size_t n) {
  const std::string_view text(reinterpret_cast<const char*>(data), n);
  for (const Kind& kind : kinds) {
    if (text.empty() || text[0] != kind.first) continue;
    may_refuse([&] { kind.take(text.substr(1)); });
    return 0;
  }
  return -1;
}

}  // namespace weft::fuzz
