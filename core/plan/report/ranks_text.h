// Lists of ranks short enough to read: "0-127", "0,8,..,56", for worlds of any size.
#ifndef MOE_CORE_PLAN_REPORT_RANKS_TEXT_H_
#define MOE_CORE_PLAN_REPORT_RANKS_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/topology/mesh.h"

namespace moe {

// Ascending ranks as runs: "0-3", "0-12/4" (every fourth), "0-3 8-11"; with more than `limit` runs the first, the second, ".."
// and the last.
std::string RanksText(const std::vector<int64_t>& ranks, size_t limit = 4);

// The groups of a kind with more than one member: how many, how large, the first two and the last.
struct GroupSummary {
  GroupKind kind;
  int64_t groups = 0, size = 0;
  std::vector<std::string> examples;
};
GroupSummary Summarize(const Mesh& mesh, GroupKind kind);

}  // namespace moe
#endif  // MOE_CORE_PLAN_REPORT_RANKS_TEXT_H_
