#include "trainer/plot.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace moe::trainer {
namespace {

constexpr double kWidth = 720, kHeight = 400, kLeft = 60, kRight = 20, kTop = 30, kBottom = 45;

// A step of 1, 2 or 5 times a power of ten that gives at most `most` marks.
double NiceStep(double range, int most) {
  const double raw = range / most, power = std::pow(10.0, std::floor(std::log10(raw)));
  for (double f : {1.0, 2.0, 5.0})
    if (f * power >= raw) return f * power;
  return 10 * power;
}

}  // namespace

std::string PlotLosses(const std::vector<Point>& train, const std::vector<Point>& val) {
  double x1 = 1, low = 1e300, high = -1e300;
  for (const auto* line : {&train, &val}) {
    for (const Point& p : *line) {
      if (!std::isfinite(p.y)) continue;
      x1 = std::max(x1, p.x);
      low = std::min(low, p.y);
      high = std::max(high, p.y);
    }
  }
  if (low > high) low = 0, high = 1;
  if (high - low < 1e-9) high = low + 1;
  const auto X = [&](double x) { return kLeft + x / x1 * (kWidth - kLeft - kRight); };
  const auto Y = [&](double y) { return kTop + (high - y) / (high - low) * (kHeight - kTop - kBottom); };
  std::string s = absl::StrFormat("<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %g %g\" font-family=\"sans-serif\" font-size=\"12\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n", kWidth, kHeight);
  const double sx = NiceStep(x1, 8), sy = NiceStep(high - low, 6);
  for (double x = 0; x <= x1 * 1.0001; x += sx)
    absl::StrAppendFormat(&s, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%g\" y2=\"%g\" stroke=\"#ddd\"/><text x=\"%.1f\" y=\"%g\" text-anchor=\"middle\">%g</text>\n", X(x), X(x), kTop, kHeight - kBottom, X(x), kHeight - kBottom + 16, x);
  for (double y = std::ceil(low / sy) * sy; y <= high; y += sy)
    absl::StrAppendFormat(&s, "<line x1=\"%g\" x2=\"%g\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/><text x=\"%g\" y=\"%.1f\" text-anchor=\"end\">%.3g</text>\n", kLeft, kWidth - kRight, Y(y), Y(y), kLeft - 6, Y(y) + 4, y);
  const struct { const std::vector<Point>& line; const char* color; const char* name; } curves[] = {{train, "#3b6fb6", "training"}, {val, "#d1495b", "held out"}};
  double at = kLeft + 10;
  for (const auto& c : curves) {
    s += absl::StrCat("<polyline fill=\"none\" stroke-width=\"1.5\" stroke=\"", c.color, "\" points=\"");
    for (const Point& p : c.line)
      if (std::isfinite(p.y)) absl::StrAppendFormat(&s, "%.1f,%.1f ", X(p.x), Y(p.y));
    s += "\"/>\n";
    for (const Point& p : c.line)
      if (c.line.size() < 60 && std::isfinite(p.y)) absl::StrAppendFormat(&s, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2.5\" fill=\"%s\"/>", X(p.x), Y(p.y), c.color);
    absl::StrAppendFormat(&s, "<text x=\"%g\" y=\"18\" fill=\"%s\">%s</text>\n", at, c.color, c.name);
    at += 80;
  }
  absl::StrAppendFormat(&s, "<text x=\"%g\" y=\"%g\" text-anchor=\"middle\">step</text><text x=\"%g\" y=\"18\" text-anchor=\"end\">nats per byte</text>\n</svg>\n", (kLeft + kWidth) / 2, kHeight - 8, kWidth - kRight);
  return s;
}

}  // namespace moe::trainer
