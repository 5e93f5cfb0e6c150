// One group as one of its members keeps it. Guarded by the engine's lock.
#ifndef MOE_TRANSPORT_GROUP_H_
#define MOE_TRANSPORT_GROUP_H_

#include <array>
#include <cstdint>
#include <map>
#include <vector>

#include "core/base/status.h"
#include "transport/descriptor.h"

namespace moe {

struct Group {
  int64_t id = -1;
  int64_t number = -1;             // agreed when the group was made; in every tag
  int64_t epoch = 0;
  std::vector<int64_t> members;    // global ranks by group rank
  int rank = -1;                   // of this member in the group
  int64_t next_sequence = 0;
  uint64_t history = 0;            // fingerprint of the operations so far
  absl::Status status;             // the poison

  // The last operations, to compare with what a waiting member says it is in.
  static constexpr int64_t kRecent = 64;
  std::array<Descriptor, kRecent> recent;
  // What waiting members said, by global rank, until this rank gets there.
  std::map<int64_t, Descriptor> waiting;

  int size() const { return static_cast<int>(members.size()); }
};

}  // namespace moe
#endif  // MOE_TRANSPORT_GROUP_H_
