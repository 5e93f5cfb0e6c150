// Values next to one that does not work, for messages.
#ifndef MOE_CORE_TOPOLOGY_NEAREST_H_
#define MOE_CORE_TOPOLOGY_NEAREST_H_

#include <algorithm>
#include <cstdint>
#include <string>

#include "absl/strings/str_cat.h"

namespace moe {

// The divisors of n >= 1 next to `near`: "2 or 4".
inline std::string NearestDivisors(int64_t n, int64_t near) {
  int64_t below = std::clamp<int64_t>(near, 1, n), above = below;
  while (n % below != 0) --below;
  while (n % above != 0) ++above;
  return below == above ? absl::StrCat(below) : absl::StrCat(below, " or ", above);
}

// The multiples of `of` >= 1 next to `near`.
inline std::string NearestMultiples(int64_t of, int64_t near) {
  const int64_t below = near / of * of;
  return below > 0 ? absl::StrCat(below, " or ", below + of) : absl::StrCat(of);
}

}  // namespace moe
#endif  // MOE_CORE_TOPOLOGY_NEAREST_H_
