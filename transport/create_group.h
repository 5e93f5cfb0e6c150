// Makes a group: every member meets every other, with a deadline.
#ifndef MOE_TRANSPORT_CREATE_GROUP_H_
#define MOE_TRANSPORT_CREATE_GROUP_H_

#include <memory>

#include "absl/types/span.h"
#include "transport/engine.h"

namespace moe {

absl::StatusOr<std::unique_ptr<Communicator>> CreateGroup(const std::shared_ptr<Engine>& engine, int64_t id, absl::Span<const int64_t> members);

}  // namespace moe
#endif  // MOE_TRANSPORT_CREATE_GROUP_H_
