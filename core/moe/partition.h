// Which rank of the expert-parallel group holds which experts. Implementations: experts/partition/*.
#ifndef MOE_CORE_MOE_PARTITION_H_
#define MOE_CORE_MOE_PARTITION_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/base/status.h"

namespace moe {

// An immutable map, the same on all ranks. Every expert is held by exactly one rank of the group.
class Placement {
 public:
  // owner_of[g] = rank (0 .. ep-1) that holds global expert g. INVALID_ARGUMENT if a rank is out of range.
  static absl::StatusOr<Placement> Make(int64_t ep, std::vector<int64_t> owner_of);

  int64_t ep() const { return static_cast<int64_t>(experts_of_.size()); }
  int64_t num_global_experts() const { return static_cast<int64_t>(owner_of_.size()); }
  int64_t owner(int64_t expert) const { return owner_of_[expert]; }
  // Index among the owner's experts (ascending by global id).
  int64_t slot(int64_t expert) const { return slot_of_[expert]; }
  const std::vector<int64_t>& experts_of(int64_t rank) const { return experts_of_[rank]; }

 private:
  std::vector<int64_t> owner_of_, slot_of_;
  std::vector<std::vector<int64_t>> experts_of_;
};

class Partition {
 public:
  virtual ~Partition() = default;
  virtual std::string name() const = 0;
  // INVALID_ARGUMENT when the experts do not fit the ranks, naming both numbers and the nearest that do.
  virtual absl::StatusOr<Placement> Place(int64_t num_global_experts, int64_t ep) const = 0;
};

}  // namespace moe
#endif  // MOE_CORE_MOE_PARTITION_H_
