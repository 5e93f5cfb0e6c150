#include "core/plan/report/picture.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace moe {
namespace {

// F3, or F3.5 where a stage has several virtual stages.
std::string Label(const Op& op, bool with_chunk) {
  Op plain = op;
  if (!with_chunk) plain.chunk = 0;
  return ToString(plain);
}

bool IsShown(OpKind kind, bool routes) { return routes ? IsCompute(kind) : kind == OpKind::kForward || IsBackward(kind); }

// The time of one column: the shortest op of a stage in the middle.
double CellSeconds(const std::vector<StageProgram>& programs, const Timeline& t) {
  std::vector<double> shortest;
  for (size_t s = 0; s < programs.size(); ++s) {
    double least = t.seconds;
    for (size_t i = 0; i < programs[s].size(); ++i)
      if (IsShown(programs[s][i].kind, false)) least = std::min(least, t.stages[s][i].end - t.stages[s][i].start);
    shortest.push_back(least);
  }
  std::sort(shortest.begin(), shortest.end());
  return std::max(shortest[shortest.size() / 2], 1e-12);
}

const char* Colour(OpKind kind) {
  switch (kind) {
    case OpKind::kForward: return "#4c8bd6";
    case OpKind::kBackward: return "#5aa469";
    case OpKind::kBackwardInput: return "#5aa469";
    case OpKind::kBackwardWeight: return "#b6d7a8";
    case OpKind::kRoute: return "#b9c6d8";
    default: return "#d9a441";
  }
}

std::string Escape(const std::string& text) {
  std::string out;
  for (char ch : text) {
    if (ch == '<') out += "&lt;";
    else if (ch == '>') out += "&gt;";
    else if (ch == '&') out += "&amp;";
    else out += ch;
  }
  return out;
}

}  // namespace

std::string TextPicture(const std::vector<StageProgram>& programs, const Timeline& t, int64_t width, int64_t lines) {
  const int64_t stages = static_cast<int64_t>(programs.size());
  const double cell_seconds = CellSeconds(programs, t);
  double begin = t.seconds;
  size_t label = 1;
  bool with_chunk = false;
  for (int64_t s = 0; s < stages; ++s) {
    for (size_t i = 0; i < programs[s].size(); ++i) {
      if (!IsShown(programs[s][i].kind, false)) continue;
      begin = std::min(begin, t.stages[s][i].start);
      with_chunk = with_chunk || programs[s][i].chunk >= stages;
    }
  }
  for (const StageProgram& p : programs)
    for (const Op& op : p)
      if (IsShown(op.kind, false)) label = std::max(label, Label(op, with_chunk).size());
  const int64_t cell = static_cast<int64_t>(label) + 1, cells = std::max<int64_t>(1, (width - 10) / cell);
  std::string out;
  bool cut = false;
  for (int64_t s = 0; s < stages; ++s) {
    if (stages > lines && s >= lines - 2 && s < stages - 1) {
      if (s == lines - 2) absl::StrAppend(&out, "     ..  (", stages - lines + 1, " stages like these)\n");
      continue;
    }
    std::string row(cells * cell, ' ');
    for (int64_t c = 0; c < cells; ++c) row[c * cell] = '.';
    int64_t free_from = 0, last = 0;
    for (size_t i = 0; i < programs[s].size(); ++i) {
      if (!IsShown(programs[s][i].kind, false)) continue;
      const int64_t first = std::max<int64_t>(free_from, std::llround((t.stages[s][i].start - begin) / cell_seconds));
      const int64_t end = std::max<int64_t>(first + 1, std::llround((t.stages[s][i].end - begin) / cell_seconds));
      if (first >= cells) {
        cut = true;
        break;
      }
      const std::string text = Label(programs[s][i], with_chunk);
      for (int64_t c = first * cell; c < std::min(end, cells) * cell; ++c) row[c] = c % cell == cell - 1 && c == end * cell - 1 ? ' ' : '-';
      row.replace(first * cell, text.size(), text);
      free_from = end;
      last = std::min(end, cells);
    }
    row.resize(last * cell);
    while (!row.empty() && row.back() == ' ') row.pop_back();
    absl::StrAppend(&out, absl::StrFormat("  %4d   ", s), row, "\n");
  }
  absl::StrAppend(&out, "         one column is ", cell_seconds >= 1 ? absl::StrFormat("%.3g s", cell_seconds) : absl::StrFormat("%.3g ms", cell_seconds * 1e3), "; F forward, B backward, I and W its halves for inputs and weights, . idle", cut ? "; the rest is not shown (--svg shows all)" : "", "\n");
  return out;
}

std::string SvgPicture(const std::vector<StageProgram>& programs, const Timeline& t, const std::string& title) {
  constexpr int64_t kMostBoxes = 40000;
  const int64_t stages = static_cast<int64_t>(programs.size());
  const double left = 70, top = 40, row = std::clamp(600.0 / static_cast<double>(stages), 6.0, 28.0), width = 1600;
  const double seconds = t.seconds > 0 ? t.seconds : 1, scale = width / seconds, height = top + row * static_cast<double>(stages) + 50;
  std::string out = absl::StrFormat("<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n", left + width + 20, height);
  absl::StrAppend(&out, "<text x=\"10\" y=\"22\" font-size=\"14\">", Escape(title), "</text>\n");
  int64_t boxes = 0;
  bool cut = false, with_chunk = false;
  for (const StageProgram& p : programs)
    for (const Op& op : p) with_chunk = with_chunk || op.chunk >= stages;
  for (int64_t s = 0; s < stages; ++s) {
    const double y = top + row * static_cast<double>(s);
    absl::StrAppend(&out, absl::StrFormat("<text x=\"10\" y=\"%.1f\">stage %d</text>\n<rect x=\"%.0f\" y=\"%.1f\" width=\"%.0f\" height=\"%.1f\" fill=\"#f1f1f1\"/>\n", y + row * 0.7, s, left, y, width, row - 1));
    for (size_t i = 0; i < programs[s].size(); ++i) {
      const Span& span = t.stages[s][i];
      const OpKind kind = programs[s][i].kind;
      if (kind == OpKind::kExchange || span.end <= span.start) continue;
      if (++boxes > kMostBoxes) {
        cut = true;
        break;
      }
      const double x = left + span.start * scale, w = (span.end - span.start) * scale;
      const std::string text = Label(programs[s][i], with_chunk);
      absl::StrAppend(&out, absl::StrFormat("<rect x=\"%.2f\" y=\"%.1f\" width=\"%.2f\" height=\"%.1f\" fill=\"%s\" stroke=\"white\" stroke-width=\"0.3\"><title>%s: %.4g to %.4g s</title></rect>\n", x, y, w, row - 1, Colour(kind), Escape(text), span.start, span.end));
      if (IsCompute(kind) && w > 7.0 * static_cast<double>(text.size()) && row > 12) absl::StrAppend(&out, absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" fill=\"#111\">%s</text>\n", x + 2, y + row * 0.7, text));
    }
    if (cut) break;
  }
  absl::StrAppend(&out, absl::StrFormat("<text x=\"%.0f\" y=\"%.1f\">0 s</text><text x=\"%.0f\" y=\"%.1f\" text-anchor=\"end\">%.4g s</text>\n", left, height - 30, left + width, height - 30, t.seconds));
  absl::StrAppend(&out, "<text x=\"", left, "\" y=\"", height - 10, "\">blue: forward; green: backward (light: weights); pale blue: routing only; yellow: reductions and update; grey: idle",
                  cut ? absl::StrCat("; only the first ", kMostBoxes, " operations are drawn") : "", "</text>\n</svg>\n");
  return out;
}

}  // namespace moe
