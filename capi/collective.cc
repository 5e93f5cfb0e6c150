#include "capi/collective.h"

#include <algorithm>

#include "absl/strings/match.h"
#include "core/comm/agree.h"

namespace moe::capi {

absl::Status Meet(Communicator* group, const absl::Status& mine, const char* what, uint64_t fingerprint) {
  if (group == nullptr) return mine;
  const int64_t f = static_cast<int64_t>(fingerprint >> 1);
  int64_t least[3] = {mine.ok() ? group->size() : group->rank(), f, -f};   // one reduction for both questions
  MOE_RETURN_IF_ERROR(AllReduce(group->For("arguments"), least, 3, DType::kI64, ReduceOp::kMin));
  if (least[0] < group->size()) return Agree(group, mine);
  if (least[1] != -least[2]) return InvalidArgument("the ranks give different ", what, "; all ranks must give the same");
  return absl::OkStatus();
}

absl::Status Run(int64_t rank, int64_t ranks, const std::function<void(const absl::Status&)>& abort, const std::function<absl::Status()>& f) {
  const auto tell = [&](const absl::Status& s) {
    if (IsAgreed(s, ranks)) return;   // every rank has it, and the communication is as good as before
    FailureInfo info = GetFailureInfo(s);
    const std::string name = absl::StrCat("rank ", rank);
    if (info.origin_rank < 0) info.origin_rank = rank;
    const bool says_who = info.origin_rank != rank || absl::StrContains(s.message(), name);   // as errors of the communication do
    abort(WithFailureInfo(says_who ? s : Annotate(s, name), info));
  };
  try {
    const absl::Status s = f();
    if (!s.ok()) tell(s);
    return s;
  } catch (...) {
    tell(absl::ResourceExhaustedError("out of memory"));
    throw;
  }
}

uint64_t Hash(const void* data, size_t bytes, uint64_t h) {
  for (size_t i = 0; i < bytes; ++i) h = (h ^ static_cast<const unsigned char*>(data)[i]) * 0x100000001b3u;
  return h;
}

}  // namespace moe::capi
