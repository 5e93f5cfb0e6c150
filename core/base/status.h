// The vocabulary of errors: absl::Status everywhere inside, with a payload for what a distributed job
// must tell (which rank, which group, which operation). capi/ turns it into moe_status.
#ifndef MOE_CORE_BASE_STATUS_H_
#define MOE_CORE_BASE_STATUS_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace moe {

// Where a failure was first known. Travels inside an absl::Status as a payload.
struct FailureInfo {
  int64_t origin_rank = -1;            // global rank that first knew, -1: not a matter of ranks
  std::vector<int64_t> failed_ranks;   // global ranks that died, stopped or disagree
  int64_t group = -1;                  // id of the group, -1: none
  int64_t epoch = -1;
  int64_t sequence = -1;               // number of the operation in its group
};

// The same status with `info` attached (replaces an earlier one).
absl::Status WithFailureInfo(absl::Status status, const FailureInfo& info);
// The attached info, or the defaults above.
FailureInfo GetFailureInfo(const absl::Status& status);
// "<context>: <message>", code and payload kept. OK stays OK.
absl::Status Annotate(const absl::Status& status, const std::string& context);

template <typename... A>
absl::Status InvalidArgument(const A&... a) { return absl::InvalidArgumentError(absl::StrCat(a...)); }
template <typename... A>
absl::Status FailedPrecondition(const A&... a) { return absl::FailedPreconditionError(absl::StrCat(a...)); }
template <typename... A>
absl::Status Internal(const A&... a) { return absl::InternalError(absl::StrCat(a...)); }

}  // namespace moe

#define MOE_CONCAT_INNER(a, b) a##b
#define MOE_CONCAT(a, b) MOE_CONCAT_INNER(a, b)

#define MOE_RETURN_IF_ERROR(expr)                       \
  do {                                                  \
    ::absl::Status moe_status_ = (expr);                \
    if (!moe_status_.ok()) return moe_status_;          \
  } while (0)

// MOE_ASSIGN_OR_RETURN(auto x, F()) for F returning absl::StatusOr.
#define MOE_ASSIGN_OR_RETURN(lhs, expr) MOE_ASSIGN_OR_RETURN_INNER(MOE_CONCAT(moe_statusor_, __LINE__), lhs, expr)
#define MOE_ASSIGN_OR_RETURN_INNER(tmp, lhs, expr)      \
  auto tmp = (expr);                                    \
  if (!tmp.ok()) return std::move(tmp).status();        \
  lhs = *std::move(tmp)

#endif  // MOE_CORE_BASE_STATUS_H_
