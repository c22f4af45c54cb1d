// The nodes of tests/data/topologies.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "parallel/topology_sources.h"
#include "runtime/base/file.h"

namespace weft::parallel {

inline std::string made_path(const std::string& name) {
  return WEFT_SOURCE_DIR "/tests/data/topologies/" + name;
}

inline std::string made_text(const std::string& name) {
  return read_text(made_path(name + ".xml"), 1 << 24);
}

// Named as the file, wherever the tests run.
inline Topology made(const std::string& name) {
  return parse_topology(made_text(name), name + ".xml");
}

// gp_index of a GPU in the file, by the order of their bus ids.
inline std::string gpu_index(const std::string& name, size_t gpu) {
  const std::string text = made_text(name);
  const size_t at = text.find("gp_index=\"", text.find(made(name).gpus.at(gpu).bus_id));
  return text.substr(at + 10, text.find('"', at + 10) - at - 10);
}

}  // namespace weft::parallel

// EXPECT_DOUBT(topology, "flat bus"): one of its doubts has this text in it.
#define EXPECT_DOUBT(topology, part)                                                         \
  do {                                                                                       \
    const auto with_doubts = (topology);                                                     \
    EXPECT_TRUE(                                                                             \
        std::any_of(with_doubts.doubts.begin(), with_doubts.doubts.end(),                    \
                    [](const std::string& d) { return d.find(part) != std::string::npos; })) \
        << part << " is not doubted; " << with_doubts.doubts.size() << " doubts: "           \
        << (with_doubts.doubts.empty() ? std::string() : with_doubts.doubts.front());        \
  } while (false)
