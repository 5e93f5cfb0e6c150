#include "core/plan/report/ranks_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace moe {

std::string RanksText(const std::vector<int64_t>& ranks, size_t limit) {
  // First runs of neighbours; where there is none, runs of equal distance.
  std::vector<std::string> runs;
  for (size_t at = 0; at < ranks.size();) {
    size_t end = at + 1;
    const int64_t step = end < ranks.size() ? ranks[end] - ranks[at] : 1;
    while (end < ranks.size() && ranks[end] - ranks[end - 1] == step) ++end;
    if (end - at == 1) runs.push_back(absl::StrCat(ranks[at]));
    else if (step == 1) runs.push_back(absl::StrCat(ranks[at], "-", ranks[end - 1]));
    else if (end - at == 2 && end < ranks.size()) --end, runs.push_back(absl::StrCat(ranks[at]));   // the second may begin a run
    else if (end - at <= 3) runs.push_back(absl::StrJoin(ranks.begin() + static_cast<int64_t>(at), ranks.begin() + static_cast<int64_t>(end), " "));
    else runs.push_back(absl::StrCat(ranks[at], "-", ranks[end - 1], "/", step));
    at = end;
  }
  if (runs.size() <= limit) return absl::StrJoin(runs, " ");
  return absl::StrCat(runs[0], " ", runs[1], " .. ", runs.back());
}

GroupSummary Summarize(const Mesh& mesh, GroupKind kind) {
  GroupSummary out;
  out.kind = kind;
  out.size = mesh.GroupSize(kind, 0);
  if (out.size <= 1) return out;
  const int64_t ranks = kind == GroupKind::kEnds ? 2 * mesh.GroupSize(GroupKind::kStage, 0) : mesh.world_size();   // ranks between the ends are alone
  out.groups = ranks / out.size;
  out.examples.push_back(RanksText(mesh.Group(kind, 0)));
  for (int64_t r = 1; r <= out.size && r < mesh.world_size() && out.groups > 2; ++r) {
    if (mesh.FirstMember(kind, r) != r) continue;
    out.examples.push_back(RanksText(mesh.Group(kind, r)));
    break;
  }
  if (out.groups > 1) out.examples.push_back(RanksText(mesh.Group(kind, mesh.world_size() - 1)));
  return out;
}

}  // namespace moe
