#include "core/base/random.h"

#include <cmath>
#include <set>

#include "gtest/gtest.h"

namespace moe {
namespace {

// Known answers of Philox4x32-10 from the Random123 distribution (kat_vectors).
TEST(RandomTest, PhiloxKnownAnswers) {
  EXPECT_EQ(Philox({0, 0, 0, 0}, {0, 0}), (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Philox({0xffffffff, 0xffffffff, 0xffffffff, 0xffffffff}, {0xffffffff, 0xffffffff}),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(RandomTest, StreamsDifferBySeedAndName) {
  std::set<uint64_t> keys = {StreamKey(0, "a"), StreamKey(1, "a"), StreamKey(0, "b"), StreamKey(1, "b"), StreamKey(0, "")};
  EXPECT_EQ(keys.size(), 5u);
}

TEST(RandomTest, NormalHasUnitMoments) {
  const uint64_t key = StreamKey(7, "w");
  double m1 = 0, m2 = 0, m4 = 0;
  const int n = 200000;
  for (int i = 0; i < n; ++i) {
    const double x = RandomNormal(key, i);
    m1 += x; m2 += x * x; m4 += x * x * x * x;
  }
  EXPECT_NEAR(m1 / n, 0, 0.01);
  EXPECT_NEAR(m2 / n, 1, 0.02);
  EXPECT_NEAR(m4 / n, 3, 0.1);
}

TEST(RandomTest, BelowStaysInRangeAndCoversIt) {
  const uint64_t key = StreamKey(7, "i");
  std::set<uint64_t> seen;
  for (int i = 0; i < 1000; ++i) { const uint64_t v = RandomBelow(key, i, 7); ASSERT_LT(v, 7u); seen.insert(v); }
  EXPECT_EQ(seen.size(), 7u);
}

}  // namespace
}  // namespace moe
