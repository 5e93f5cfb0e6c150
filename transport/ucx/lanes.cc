#include "transport/ucx/lanes.h"

#include <algorithm>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace moe {

// Lines like "#  lane[0]:  2:tcp/lo.0 md[1]  -> md[1]/tcp/sysdev[255] am am_bw#0".
Lanes ParseLanes(const std::string& info) {
  std::vector<std::string> memory, network;
  for (absl::string_view line : absl::StrSplit(info, '\n')) {
    const size_t at = line.find("lane[");
    if (at == absl::string_view::npos) continue;
    const std::vector<absl::string_view> words = absl::StrSplit(line.substr(at), absl::ByAnyChar(" \t"), absl::SkipEmpty());
    if (words.size() < 2) continue;
    const std::vector<absl::string_view> parts = absl::StrSplit(words[1], absl::ByAnyChar(":/."));  // 2, tcp, lo, 0
    if (parts.size() < 3) continue;
    const std::string tl(parts[1]);
    const bool is_memory = tl == "posix" || tl == "sysv" || tl == "cma" || tl == "xpmem" || tl == "knem";
    const std::string name = is_memory ? tl : absl::StrCat(tl, " ", parts[2]);
    std::vector<std::string>& list = is_memory ? memory : network;
    if (std::find(list.begin(), list.end(), name) == list.end()) list.push_back(name);
  }
  Lanes lanes;
  lanes.shared_memory = !memory.empty();
  if (lanes.shared_memory) lanes.text = absl::StrJoin(memory, "+") + " (shared memory)";
  if (!network.empty()) lanes.text += (lanes.text.empty() ? "" : ", ") + absl::StrJoin(network, ", ");
  if (lanes.text.empty()) lanes.text = "unknown";
  return lanes;
}

}  // namespace moe
