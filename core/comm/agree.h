// An error of one rank becomes the same error on all ranks, so that nobody waits for a rank that has left.
#ifndef MOE_CORE_COMM_AGREE_H_
#define MOE_CORE_COMM_AGREE_H_

#include <string>

#include "core/comm/communicator.h"

namespace moe {

// Collective over `group` (null or size 1: returns `mine`). OK when every rank is OK; else, on all ranks, the error of the
// lowest rank that has one, saying which rank it was ("rank 2: ..."), with its code. An error that one group has agreed on can be
// told to another: it keeps its origin.
absl::Status Agree(Communicator* group, const absl::Status& mine);

// True of an error that Agree has given to `ranks` ranks: all of them have it, nobody waits, and they can go on.
bool IsAgreed(const absl::Status& status, int64_t ranks);

// Collective. Byte strings of all ranks, in rank order.
absl::StatusOr<std::vector<std::string>> AllGatherStrings(Communicator* group, const std::string& mine);

// Collective. The root's string, on all ranks.
absl::StatusOr<std::string> BroadcastString(Communicator* group, const std::string& text, int root);

}  // namespace moe
#endif  // MOE_CORE_COMM_AGREE_H_
