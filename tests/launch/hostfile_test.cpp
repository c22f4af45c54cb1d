// Hostfiles as people write them, and as they should not.
#include "launch/hostfile.h"

#include <gtest/gtest.h>

#include "tests/support/error_text.h"

namespace weft::launch {
namespace {

std::vector<HostSlots> parse(const std::string& text) { return parse_hostfile(text, "hosts"); }

TEST(Hostfile, LinesCommentsAndSums) {
  const auto hosts = parse(
      "# two\n\nnode-a slots=8 max_slots=8\n10.0.0.2 slots=1 # one\r\n"
      "node-a slots=3\n");
  ASSERT_EQ(hosts.size(), 2u);
  EXPECT_EQ(hosts[0].name, "node-a");
  EXPECT_EQ(hosts[0].slots, 11u);
  EXPECT_EQ(hosts[1].name, "10.0.0.2");
  EXPECT_EQ(hosts[1].slots, 1u);
}

TEST(Hostfile, SaysWhatIsWrongAndWhere) {
  EXPECT_ERROR(parse("a slots=1\nb\n"), "hosts:2", "host b has no slots=N");
  EXPECT_ERROR(parse("a slot=1\n"), "hosts:1", "slot=1", "neither slots=N");
  EXPECT_ERROR(parse("a slots=many\n"), "hosts:1", "slots", "many");
  EXPECT_ERROR(parse("a slots=99999999999999999999\n"), "hosts:1");
  EXPECT_ERROR(parse("a;reboot slots=1\n"), "is no host's name");
  EXPECT_ERROR(parse("-x slots=1\n"), "is no host's name");
  EXPECT_ERROR(parse("# none\n"), "no hosts");
  EXPECT_ERROR(parse(std::string(5000, 'x') + " slots=1"), "is no host's name");
}

}  // namespace
}  // namespace weft::launch
