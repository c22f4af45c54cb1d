#include "launch/svg.h"

#include <fmt/format.h>

#include <cmath>

#include "runtime/base/text.h"

namespace weft::launch {
namespace {

constexpr std::string_view kReplacement = "\xef\xbf\xbd";

// Bytes of the UTF-8 character that starts here, 0 where none does.
size_t character_bytes(std::string_view rest) {
  for (size_t n = 1; n <= std::min<size_t>(4, rest.size()); ++n)
    if (is_utf8(rest.substr(0, n))) return n;
  return 0;
}

std::string_view entity(char c) {
  switch (c) {
    case '&':
      return "&amp;";
    case '<':
      return "&lt;";
    case '>':
      return "&gt;";
    case '"':
      return "&quot;";
    case '\'':
      return "&#39;";
    default:
      return "";
  }
}

bool is_control(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return (byte < 0x20 && c != '\n' && c != '\t') || byte == 0x7f;
}

std::string title_text(std::string_view title) {
  return title.empty() ? "" : fmt::format("<title>{}</title>", escape_html(title));
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string escaped;
  while (!text.empty()) {
    const size_t n = character_bytes(text);
    if (n == 0 || is_control(text.front()))
      escaped += kReplacement;
    else if (const std::string_view name = entity(text.front()); !name.empty())
      escaped += name;
    else
      escaped += text.substr(0, n);
    text.remove_prefix(std::max<size_t>(1, n));
  }
  return escaped;
}

Svg::Svg(double width, double height, std::string_view label)
    : text_(fmt::format("<svg viewBox=\"0 0 {0:.0f} {1:.0f}\" width=\"{0:.0f}\" height=\"{1:.0f}\" "
                        "role=\"img\" aria-label=\"{2}\">\n",
                        width, height, escape_html(label))) {}

void Svg::rect(double x, double y, double width, double height, std::string_view css_class,
               std::string_view title) {
  text_ += fmt::format(
      "<rect class=\"{}\" x=\"{:.2f}\" y=\"{:.2f}\" width=\"{:.2f}\" height=\"{:.2f}\">{}</rect>\n",
      css_class, x, y, std::max(0.0, width), std::max(0.0, height), title_text(title));
}

void Svg::circle(double x, double y, double radius, std::string_view css_class,
                 std::string_view title) {
  text_ +=
      fmt::format("<circle class=\"{}\" cx=\"{:.2f}\" cy=\"{:.2f}\" r=\"{:.2f}\">{}</circle>\n",
                  css_class, x, y, radius, title_text(title));
}

void Svg::line(double x1, double y1, double x2, double y2, std::string_view css_class) {
  text_ +=
      fmt::format("<line class=\"{}\" x1=\"{:.2f}\" y1=\"{:.2f}\" x2=\"{:.2f}\" y2=\"{:.2f}\"/>\n",
                  css_class, x1, y1, x2, y2);
}

void Svg::text(double x, double y, std::string_view css_class, std::string_view text) {
  text_ += fmt::format("<text class=\"{}\" x=\"{:.2f}\" y=\"{:.2f}\">{}</text>\n", css_class, x, y,
                       escape_html(text));
}

std::string Svg::finish() { return text_ + "</svg>\n"; }

double tick_step(double span, size_t wanted) {
  const double least = std::max(span, 1e-9) / static_cast<double>(wanted);
  const double power = std::pow(10, std::floor(std::log10(least)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (factor * power >= least) return factor * power;
  return 10 * power;
}

}  // namespace weft::launch
