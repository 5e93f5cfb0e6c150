#include "core/config/text_position.h"

#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace moe {
namespace {

// Walks over a text and knows line and column.
class Cursor {
 public:
  explicit Cursor(const std::string& text) : text_(text) {}
  bool end() const { return at_ >= text_.size(); }
  char peek() const { return end() ? '\0' : text_[at_]; }
  bool Before(int line, int column) const { return line_ < line || (line_ == line && column_ < column); }
  char Next() {
    const char c = text_[at_++];
    if (c == '\n') { ++line_; column_ = 0; }
    else if (c == '\t') column_ += 8 - column_ % 8;
    else ++column_;
    return c;
  }
  // The next character that is no blank, without moving.
  char Ahead() const {
    size_t i = at_;
    while (i < text_.size() && absl::ascii_isspace(static_cast<unsigned char>(text_[i]))) ++i;
    return i < text_.size() ? text_[i] : '\0';
  }

 private:
  const std::string& text_;
  size_t at_ = 0;
  int line_ = 0, column_ = 0;
};

bool InName(char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)) || c == '_'; }

}  // namespace

std::string FieldPathAt(const std::string& text, int line, int column) {
  std::vector<std::string> open;   // sections that the position is in
  std::string last;                // the name of the last field inside
  Cursor c(text);
  while (!c.end() && c.Before(line, column)) {
    const char first = c.Next();
    if (first == '#') {
      while (!c.end() && c.peek() != '\n') c.Next();
    } else if (first == '"' || first == '\'') {
      for (char k = '\0'; !c.end() && k != first && k != '\n';) {
        k = c.Next();
        if (k == '\\' && !c.end()) c.Next();
      }
    } else if (first == '{' || first == '<') {
      open.push_back(last);
      last.clear();
    } else if (first == '}' || first == '>') {
      last = open.empty() ? "" : open.back();
      if (!open.empty()) open.pop_back();
    } else if (InName(first)) {
      std::string name(1, first);
      while (InName(c.peek())) name += c.Next();
      const char next = c.Ahead();
      if (next == ':' || next == '{' || next == '<') last = name;   // else it is a value
    }
  }
  if (!last.empty()) open.push_back(last);
  return absl::StrJoin(open, ".");
}

}  // namespace moe
