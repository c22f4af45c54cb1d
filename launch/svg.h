// Pieces of a page: escaped text, and the few shapes that its charts are made of.
#pragma once

#include <string>
#include <string_view>

namespace weft::launch {

// &, <, >, quotes as entities; what is no text (control bytes, broken UTF-8) as U+FFFD.
std::string escape_html(std::string_view text);

// Shapes in pixels, in the order in which they are drawn. Texts are escaped here.
class Svg {
 public:
  Svg(double width, double height, std::string_view label);

  // `title` is shown where the pointer rests; "" = none.
  void rect(double x, double y, double width, double height, std::string_view css_class,
            std::string_view title = "");
  void circle(double x, double y, double radius, std::string_view css_class,
              std::string_view title = "");
  void line(double x1, double y1, double x2, double y2, std::string_view css_class);
  // `css_class` says where x is: "start", "middle", "end".
  void text(double x, double y, std::string_view css_class, std::string_view text);
  std::string finish();

 private:
  std::string text_;
};

// Numbers 1, 2, 5 times a power of ten from `low` to `high`, at most about `wanted` of them, for
// the marks of an axis.
double tick_step(double span, size_t wanted);

}  // namespace weft::launch
