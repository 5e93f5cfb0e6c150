#include "core/moe/partition.h"

namespace moe {

absl::StatusOr<Placement> Placement::Make(int64_t ep, std::vector<int64_t> owner_of) {
  if (ep < 1) return InvalidArgument("placement: ep is ", ep, ", must be at least 1");
  Placement p;
  p.experts_of_.resize(ep);
  p.slot_of_.resize(owner_of.size());
  for (size_t g = 0; g < owner_of.size(); ++g) {
    const int64_t r = owner_of[g];
    if (r < 0 || r >= ep) return InvalidArgument("placement: expert ", g, " is given to rank ", r, " of a group of ", ep);
    p.slot_of_[g] = static_cast<int64_t>(p.experts_of_[r].size());
    p.experts_of_[r].push_back(static_cast<int64_t>(g));
  }
  p.owner_of_ = std::move(owner_of);
  return p;
}

}  // namespace moe
