// For tests: an error and what its message must hold.
#ifndef MOE_CORE_CONFIG_EXPECT_REFUSED_H_
#define MOE_CORE_CONFIG_EXPECT_REFUSED_H_

#include <string>
#include <vector>

#include "core/base/status.h"
#include "gtest/gtest.h"

namespace moe {

inline void ExpectRefused(const absl::Status& s, const std::vector<std::string>& parts, absl::StatusCode code = absl::StatusCode::kInvalidArgument) {
  ASSERT_EQ(s.code(), code) << s;
  for (const std::string& p : parts) EXPECT_NE(std::string(s.message()).find(p), std::string::npos) << "'" << p << "' is not in: " << s;
}

}  // namespace moe
#endif  // MOE_CORE_CONFIG_EXPECT_REFUSED_H_
