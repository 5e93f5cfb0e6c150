#include "core/moe/capacity.h"

#include "gtest/gtest.h"

namespace moe {
namespace {

config::GateConfig Config(double factor, const char* policy, int64_t min_capacity = 0) {
  config::GateConfig c;
  c.set_capacity_factor(factor);
  c.set_drop_policy(policy);
  c.set_min_capacity(min_capacity);
  return c;
}

std::vector<int32_t> Drop(const config::GateConfig& c, int64_t experts, int64_t k, std::vector<int32_t> ids, std::vector<double> scores, int64_t* capacity = nullptr) {
  const int64_t tokens = static_cast<int64_t>(ids.size()) / k;
  auto r = ApplyCapacity(c, experts, k, tokens, scores, nullptr, &ids);
  EXPECT_TRUE(r.ok()) << r.status();
  if (capacity) *capacity = r->capacity;
  return ids;
}

TEST(CapacityTest, PositionDropsTheLast) {
  // T=4 K=1 E=2 factor 1: C=2; the third token of expert 0 has no slot.
  EXPECT_EQ(Drop(Config(1, "position"), 2, 1, {0, 0, 0, 1}, {1, 2, 3, 4}), (std::vector<int32_t>{0, 0, -1, 1}));
}

TEST(CapacityTest, ProbabilityKeepsTheLargestAndTiesGoToTheEarlierToken) {
  EXPECT_EQ(Drop(Config(1, "probability"), 2, 1, {0, 0, 0, 1}, {.1, .9, .5, .2}), (std::vector<int32_t>{-1, 0, 0, 1}));
  EXPECT_EQ(Drop(Config(1, "probability"), 2, 1, {0, 0, 0, 1}, {.5, .5, .5, .2}), (std::vector<int32_t>{0, 0, -1, 1}));
}

TEST(CapacityTest, SecondChoicesComeAfterAllFirstChoices) {
  // Expert 0: first choice of token 1, second choice of tokens 0 and 2; C = ceil(3*2/3*0.5) = 1.
  EXPECT_EQ(Drop(Config(.5, "position"), 3, 2, {1, 0, 0, 2, 2, 0}, {1, 1, 1, 1, 1, 1}), (std::vector<int32_t>{1, -1, 0, -1, 2, -1}));
}

TEST(CapacityTest, FactorZeroIsNotUnsetAndMinCapacityRaisesIt) {
  EXPECT_EQ(Drop(Config(0, "position"), 2, 1, {0, 1}, {1, 1}), (std::vector<int32_t>{-1, -1}));
  int64_t c = 0;
  EXPECT_EQ(Drop(Config(0, "position", 1), 2, 1, {0, 0, 1}, {1, 1, 1}, &c), (std::vector<int32_t>{0, -1, 1}));
  EXPECT_EQ(c, 1);
}

// R4: capacity never exceeds the tokens, whatever min_capacity says; one token and many experts work.
TEST(CapacityTest, ClampsToTheTokens) {
  int64_t c = 0;
  EXPECT_EQ(Drop(Config(100, "position", 64), 8, 2, {3, 5}, {.6, .4}, &c), (std::vector<int32_t>{3, 5}));
  EXPECT_EQ(c, 1);
  EXPECT_EQ(Drop(Config(1, "position", 4), 8, 1, {}, {}, &c), std::vector<int32_t>{});
  EXPECT_EQ(c, 0);
}

// R5: scores far below zero are no reason to drop.
TEST(CapacityTest, NegativeScoresAreKept) {
  EXPECT_EQ(Drop(Config(8, "probability"), 2, 1, {0, 0, 0}, {-5, -3, -9}), (std::vector<int32_t>{0, 0, 0}));
}

TEST(CapacityTest, PaddingTakesNoSlot) {
  std::vector<int32_t> ids = {-1, 0, -1, 0};
  auto r = ApplyCapacity(Config(1, "position"), 1, 1, 2, std::vector<double>{0, 0, 0, 0}, nullptr, &ids);
  ASSERT_TRUE(r.ok());
  EXPECT_EQ(r->capacity, 2);
  EXPECT_EQ(ids, (std::vector<int32_t>{-1, 0, -1, 0}));
}

}  // namespace
}  // namespace moe
