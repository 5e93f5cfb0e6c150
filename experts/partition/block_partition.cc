#include "experts/partition/block_partition.h"

#include <algorithm>

namespace moe {
namespace {

class BlockPartition : public Partition {
 public:
  std::string name() const override { return "block"; }
  absl::StatusOr<Placement> Place(int64_t experts, int64_t ep) const override {
    if (ep < 1 || experts < 1 || experts % ep != 0) {
      // The nearest sizes of the group that work.
      int64_t below = std::min(ep, experts), above = ep + 1;
      while (below > 1 && experts % below != 0) --below;
      while (above <= experts && experts % above != 0) ++above;
      return InvalidArgument("model.num_global_experts is ", experts, ", not divisible by mesh.ep, which is ", ep, "; partition.kind=block needs equal shares. Nearest mesh.ep: ",
                             std::max<int64_t>(below, 1), above <= experts ? absl::StrCat(" or ", above) : "", "; nearest model.num_global_experts: ",
                             std::max(experts / std::max<int64_t>(ep, 1), int64_t{1}) * std::max<int64_t>(ep, 1));
    }
    std::vector<int64_t> owner(experts);
    for (int64_t g = 0; g < experts; ++g) owner[g] = g / (experts / ep);
    return Placement::Make(ep, std::move(owner));
  }
};

}  // namespace

std::unique_ptr<Partition> MakeBlockPartition() { return std::make_unique<BlockPartition>(); }

}  // namespace moe
