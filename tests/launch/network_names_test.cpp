// Names that this host has, and names that none has.
#include "launch/network_names.h"

#include <gtest/gtest.h>

#include "parallel/nccl_hints.h"
#include "tests/support/error_text.h"

namespace weft::launch {
namespace {

struct Sorted {
  std::vector<std::string> interfaces, rdma;
};
Sorted sorted(const std::vector<std::string>& given) {
  Sorted made;
  sort_networks(given, made.interfaces, made.rdma);
  return made;
}

TEST(NetworkNames, InterfacesAndNetworksOfThisHost) {
  const std::vector<std::string> up = parallel::interfaces_up();
  EXPECT_EQ(sorted(up).interfaces, up);
  EXPECT_EQ(sorted({"127.0.0.0/8"}).interfaces, std::vector<std::string>{"127.0.0.0/8"});
  EXPECT_EQ(sorted({"0.0.0.0/0"}).interfaces.size(), 1u);
  EXPECT_TRUE(sorted({}).interfaces.empty());
}

TEST(NetworkNames, WhatIsNotHereIsRefusedWithWhatIs) {
  EXPECT_ERROR(sorted({"eth77"}), "--nic eth77", "no such network", "it has");
  EXPECT_ERROR(sorted({"203.0.113.0/24"}), "--nic 203.0.113.0/24", "no such network");
  EXPECT_ERROR(sorted({"10.0.0/8"}), "no address of a network");
  EXPECT_ERROR(sorted({"10.0.0.0/33"}), "--nic 10.0.0.0/33");
  EXPECT_ERROR(sorted({""}), "no such network");
}

}  // namespace
}  // namespace weft::launch
