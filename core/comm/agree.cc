#include "core/comm/agree.h"

#include <algorithm>

#include "absl/strings/cord.h"

namespace moe {
namespace {

constexpr char kAgreed[] = "moe.agreed";

absl::Status MarkAgreed(absl::Status s, Communicator* group, int64_t origin) {
  FailureInfo info;
  info.origin_rank = origin;
  s = WithFailureInfo(std::move(s), info);
  s.SetPayload(kAgreed, absl::Cord(absl::StrCat(group->size())));
  return s;
}

}  // namespace

bool IsAgreed(const absl::Status& s, int64_t ranks) {
  const auto payload = s.GetPayload(kAgreed);
  return payload.has_value() && *payload == absl::StrCat(ranks);
}

absl::Status Agree(Communicator* group, const absl::Status& mine) {
  if (group == nullptr || group->size() == 1) return mine;
  int64_t first = mine.ok() ? group->size() : group->rank();
  MOE_RETURN_IF_ERROR(AllReduce(group->For("agreement"), &first, 1, DType::kI64, ReduceOp::kMin));
  if (first == group->size()) return absl::OkStatus();
  const int root = static_cast<int>(first);
  // What this rank was told by another in a group before says already whose error it is.
  const int64_t self = group->members()[group->rank()], known = GetFailureInfo(mine).origin_rank;
  const bool told = mine.GetPayload(kAgreed).has_value() && known != self;
  MOE_ASSIGN_OR_RETURN(const std::string text, BroadcastString(group, absl::StrCat(static_cast<int>(mine.code()), " ", told ? known : self, " ", told ? "" : absl::StrCat("rank ", self, ": "), mine.message()), root));
  const size_t first_space = text.find(' '), second_space = text.find(' ', first_space + 1);
  const int64_t origin = std::stoll(text.substr(first_space + 1));
  if (group->rank() == root) return MarkAgreed(mine, group, origin);
  return MarkAgreed(absl::Status(static_cast<absl::StatusCode>(std::stoi(text)), text.substr(second_space + 1)), group, origin);
}

absl::StatusOr<std::vector<std::string>> AllGatherStrings(Communicator* group, const std::string& mine) {
  if (group == nullptr || group->size() == 1) return std::vector<std::string>{mine};
  std::vector<int64_t> sizes(group->size());
  const int64_t size = static_cast<int64_t>(mine.size());
  MOE_RETURN_IF_ERROR(AllGather(group->For("length"), &size, sizeof(size), sizes.data()));
  const int64_t longest = *std::max_element(sizes.begin(), sizes.end());
  std::string padded = mine, all(longest * group->size(), '\0');
  padded.resize(longest);
  MOE_RETURN_IF_ERROR(AllGather(group->For("text"), padded.data(), longest, all.data()));
  std::vector<std::string> out;
  for (int r = 0; r < group->size(); ++r) out.push_back(all.substr(r * longest, sizes[r]));
  return out;
}

absl::StatusOr<std::string> BroadcastString(Communicator* group, const std::string& text, int root) {
  if (group == nullptr || group->size() == 1) return text;
  int64_t size = static_cast<int64_t>(text.size());
  MOE_RETURN_IF_ERROR(Broadcast(group->For("length"), &size, sizeof(size), root));
  std::string out = text;
  out.resize(size);
  MOE_RETURN_IF_ERROR(Broadcast(group->For("text"), out.data(), size, root));
  return out;
}

}  // namespace moe
