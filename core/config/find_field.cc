// Finding a field by its path, and what a mistyped path may have meant.
#include <algorithm>
#include <set>

#include "absl/strings/str_join.h"
#include "core/config/fields.h"

namespace moe {
namespace {

// Levenshtein's distance: insertions, deletions and replacements of one character.
size_t EditDistance(const std::string& a, const std::string& b) {
  std::vector<size_t> row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    size_t diagonal = row[0];
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
    }
  }
  return row[b.size()];
}

// The three nearest. A bare name is compared with the last part of each path too: top_k means model.top_k.
std::vector<std::string> Nearest(const std::string& path) {
  const std::string given = path.substr(0, 100);   // bounds the work; no path is as long
  std::vector<std::pair<size_t, std::string>> all;
  std::set<std::string> sections;
  for (const LeafField& l : ConfigLeaves()) {
    all.emplace_back(std::min(EditDistance(given, l.path), EditDistance(given, l.leaf()->name())), l.path);
    if (l.chain.size() > 1 && sections.insert(l.chain[0]->name()).second) all.emplace_back(EditDistance(given, l.chain[0]->name()), l.chain[0]->name());
  }
  std::stable_sort(all.begin(), all.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<std::string> out;
  for (size_t i = 0; i < 3; ++i) out.push_back(all[i].second);
  return out;
}

}  // namespace

absl::StatusOr<LeafField> FindConfigField(const std::string& path) {
  std::vector<std::string> inside;
  for (const LeafField& l : ConfigLeaves()) {
    if (l.path == path || l.path == path + ".kind") return l;
    if (l.path.compare(0, path.size() + 1, path + ".") == 0) inside.push_back(l.path);
  }
  if (!inside.empty()) return InvalidArgument("'", path, "' is a section without a kind and takes no value; its fields: ", absl::StrJoin(inside, ", "));
  return InvalidArgument("there is no field '", path, "'; nearest: ", absl::StrJoin(Nearest(path), ", "));
}

}  // namespace moe
