// The report's page: whole, escaped, and alone.
#include <fmt/format.h>

#include <map>

#include "launch/svg.h"
#include "planner/plan.h"
#include "tests/launch/plan_fixture.h"

namespace weft::launch {
namespace {

// Tags of a page, checked for their nesting: the name of the first that is wrong, or nothing.
class Tags {
 public:
  explicit Tags(std::string_view html) {
    for (size_t at = html.find('<'); at != std::string_view::npos && problem_.empty();
         at = html.find('<', at + 1))
      take(html.substr(at + 1, html.find('>', at) - at - 1));
    if (problem_.empty() && !open_.empty()) problem_ = open_.back() + " is never closed";
  }
  const std::string& problem() const { return problem_; }
  size_t count(const std::string& name) const {
    const auto found = counts_.find(name);
    return found == counts_.end() ? 0 : found->second;
  }

 private:
  void take(std::string_view tag) {
    if (tag.starts_with("!DOCTYPE")) return;
    const bool closes = tag.starts_with("/");
    const std::string name(tag.substr(closes, tag.find_first_of(" /", 1) - closes));
    if (!closes) ++counts_[name];
    if (name == "meta" || tag.ends_with("/")) return;
    if (!closes) return open_.push_back(name);
    if (open_.empty() || open_.back() != name)
      problem_ = fmt::format("</{}> closes {}", name, open_.empty() ? "nothing" : open_.back());
    else
      open_.pop_back();
  }

  std::vector<std::string> open_;
  std::map<std::string, size_t> counts_;
  std::string problem_;
};

class PlanHtmlTest : public PlanCommandTest {
 protected:
  std::string page(std::vector<std::string> words) {
    const std::string configs = std::string(WEFT_SOURCE_DIR) + "/configs";
    words.insert(words.end(),
                 {"--configs", configs, "--html", file("report.html"), "-o", file("plan.yaml")});
    EXPECT_EQ(plan(words).error, "");
    return read_text(file("report.html"), size_t{1} << 26);
  }
  static std::string cluster(const std::string& name) {
    return std::string(WEFT_SOURCE_DIR) + "/configs/clusters/" + name + ".yaml";
  }
};

size_t count(const std::string& text, const std::string& part) {
  size_t n = 0;
  for (size_t at = text.find(part); at != std::string::npos; at = text.find(part, at + 1)) ++n;
  return n;
}

TEST_F(PlanHtmlTest, IsOneWholePage) {
  const std::string html = page({"--model", model("deepseek-coder-33b"), "--cluster",
                                 cluster("h100-2x8"), "--layout", "31x8,31x8"});
  const Tags tags(html);
  EXPECT_EQ(tags.problem(), "");
  EXPECT_EQ(tags.count("section"), 6u);
  EXPECT_EQ(count(html, "role=\"img\""), 4u) << "nodes, schedule, times, front";
  EXPECT_EQ(count(html, "class=\"node\""), 2u);
  EXPECT_EQ(count(html, "class=\"free\" x"), 16u) << "a bar a GPU";
  EXPECT_GE(count(html, "class=\"step-prefill\""), 4u);
  EXPECT_GE(count(html, "class=\"step-decode\""), 4u);
  for (const char* heading : {"Stages and memory", "Schedule", "The layout given", "Refused"})
    EXPECT_EQ(count(html, std::string("<h2>") + heading), 1u) << heading;
  EXPECT_EQ(count(html, "best"), 0u) << "nothing was searched";
  const std::string searched =
      page({"--model", model("llama-3.1-8b"), "--cluster", cluster("h100-1x8")});
  EXPECT_EQ(count(searched, "<h2>Layouts, best first"), 1u);
}

TEST_F(PlanHtmlTest, NeedsNoNetworkAndNoScript) {
  const std::string html =
      page({"--model", model("llama-3.1-8b"), "--cluster", cluster("h100-1x8")});
  for (const char* reference : {"http:", "https:", "src=", "href=", "url(", "@import", "<script",
                                "<link", "<iframe", "javascript:"})
    EXPECT_EQ(count(html, reference), 0u) << reference;
}

TEST_F(PlanHtmlTest, TextsOfFilesAreEscaped) {
  std::string facts = read_text(model("deepseek-coder-1.3b"), 1 << 20);
  const size_t at = facts.find("name: ");
  ASSERT_NE(at, std::string::npos);
  facts.replace(at, facts.find('\n', at) - at, R"(name: "<script>\"a\" & 'b'\n</title>")");
  write_file(file("odd.yaml"), facts);
  const std::string html = page({"--model", file("odd.yaml"), "--cluster", cluster("h100-1x8")});
  EXPECT_EQ(Tags(html).problem(), "");
  EXPECT_EQ(count(html, "<script"), 0u);
  EXPECT_GE(count(html, "&lt;script&gt;&quot;a&quot; &amp; &#39;b&#39;"), 1u);
  EXPECT_NO_THROW(planner::read_plan_yaml(file("plan.yaml"))) << "the name broke the comments";
}

TEST(EscapeHtml, LeavesTextAndReplacesBytesThatAreNone) {
  EXPECT_EQ(escape_html("a<b>&\"'é"), "a&lt;b&gt;&amp;&quot;&#39;é");
  EXPECT_EQ(escape_html(std::string("\x01\xff\xc3", 3)), "\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
  EXPECT_EQ(escape_html(""), "");
}

TEST(TickStep, IsARoundNumberThatFits) {
  EXPECT_DOUBLE_EQ(tick_step(100, 10), 10);
  EXPECT_DOUBLE_EQ(tick_step(101, 10), 20);
  EXPECT_DOUBLE_EQ(tick_step(0.7, 8), 0.1);
  EXPECT_DOUBLE_EQ(tick_step(7, 3), 5);
}

}  // namespace
}  // namespace weft::launch
