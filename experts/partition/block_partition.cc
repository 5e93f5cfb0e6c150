#include "experts/partition/block_partition.h"

#include <algorithm>

#include "absl/strings/str_join.h"

namespace moe {
namespace {

// The divisors of n next to `near`, below and above.
std::vector<int64_t> NearestDivisors(int64_t n, int64_t near) {
  std::vector<int64_t> out;
  int64_t below = std::min(near, n), above = near + 1;
  while (n % below != 0) --below;
  out.push_back(below);
  while (above <= n && n % above != 0) ++above;
  if (above <= n) out.push_back(above);
  return out;
}

// The multiples of m next to `near`, below and above, without 0.
std::vector<int64_t> NearestMultiples(int64_t near, int64_t m) {
  std::vector<int64_t> out;
  if (near >= m) out.push_back(near / m * m);
  out.push_back((near / m + 1) * m);
  return out;
}

class BlockPartition : public Partition {
 public:
  std::string name() const override { return "block"; }
  absl::StatusOr<Placement> Place(int64_t experts, int64_t ep) const override {
    if (experts < 1) return InvalidArgument("model.num_global_experts is ", experts, ", must be at least 1");
    if (ep < 1) return InvalidArgument("mesh.ep is ", ep, ", must be at least 1");
    if (experts % ep != 0) {
      return InvalidArgument("model.num_global_experts is ", experts, ", not divisible by mesh.ep, which is ", ep, "; partition.kind=block needs equal shares. Nearest mesh.ep: ",
                             absl::StrJoin(NearestDivisors(experts, ep), " or "), "; nearest model.num_global_experts: ", absl::StrJoin(NearestMultiples(experts, ep), " or "));
    }
    std::vector<int64_t> owner(experts);
    for (int64_t g = 0; g < experts; ++g) owner[g] = g / (experts / ep);
    return Placement::Make(ep, std::move(owner));
  }
};

}  // namespace

std::unique_ptr<Partition> MakeBlockPartition() { return std::make_unique<BlockPartition>(); }

}  // namespace moe
