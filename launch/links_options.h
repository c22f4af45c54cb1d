// The flags of `weft bench links`, and what they come to for a number of ranks.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "launch/device_choice.h"
#include "runtime/base/dtype.h"

namespace CLI {
class App;
}

namespace weft::launch {

enum class LinkTest { p2p, ring, all_reduce, all_gather, all_to_all, send_recv };
inline constexpr std::string_view kLinkTestNames[] = {"p2p",        "ring",       "all-reduce",
                                                      "all-gather", "all-to-all", "send-recv"};
std::string_view name_of(LinkTest test);

struct LinkOptions {
  LinkTest test = LinkTest::p2p;
  std::optional<size_t> min_bytes;
  std::optional<size_t> max_bytes;
  DType dtype = DType::f32;
  size_t factor = 2;
  size_t iterations = 20;
  double seconds = 0.2;
  bool graph = false;
  bool json = false;
  std::string html;
  std::string configs;
  bool bind = true;
  bool verbose = false;
  DeviceOptions device;
};

void add_link_options(CLI::App& command, LinkOptions& options);

// "8", "64K", "1.75M", "1G" (powers of 1024) in bytes; throws Error naming the flag.
size_t parse_size(const std::string& text, const std::string& flag);
// "8", "14K", "1792K", "1G": the shortest that parse_size reads back.
std::string size_text(size_t bytes);

// What is measured.
struct LinkPlan {
  LinkTest test = LinkTest::p2p;
  DType dtype = DType::f32;
  size_t n_ranks = 0;
  std::vector<size_t> sizes;  // bytes, ascending; of p2p: the message for latency, that for rates
  size_t iterations = 20;
  double seconds = 0.2;  // that a size is timed, at most
  bool graph = false;

  size_t largest() const { return sizes.back(); }
  // The unit that every size is a multiple of: an element, or one for each rank.
  size_t unit() const;
};

// Throws Error with everything that is wrong with the flags for so many ranks. Sizes that are not
// given follow the device.
LinkPlan plan_links(const LinkOptions& options, size_t n_ranks, bool on_gpu);
// Bytes that a rank takes for it.
size_t link_memory_bytes(const LinkPlan& plan, bool on_gpu);

}  // namespace weft::launch
