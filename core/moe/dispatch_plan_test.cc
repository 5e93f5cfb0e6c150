#include "core/moe/dispatch_plan.h"

#include "gtest/gtest.h"

namespace moe {
namespace {

TEST(DispatchPlanTest, SortsRoutesByExpertAndKeepsTokenOrder) {
  auto placement = Placement::Make(1, {0, 0, 0});
  const std::vector<int32_t> ids = {2, 0, 0, 1, -1, 2, 1, 0};   // T=4, K=2
  auto plan = DispatchPlan::Make(ids, 2, *placement, nullptr);
  ASSERT_TRUE(plan.ok()) << plan.status();
  EXPECT_EQ(plan->token_N(), (std::vector<int32_t>{0, 1, 3, 1, 3, 0, 2}));
  EXPECT_EQ(plan->pos_TK(), (std::vector<int32_t>{5, 0, 1, 3, -1, 6, 4, 2}));
  EXPECT_EQ(plan->offsets(), (std::vector<int64_t>{0, 3, 5, 7}));
  EXPECT_EQ(plan->counts(), (std::vector<int64_t>{3, 2, 2}));
}

TEST(DispatchPlanTest, NoTokens) {
  auto placement = Placement::Make(1, {0, 0});
  auto plan = DispatchPlan::Make({}, 2, *placement, nullptr);
  ASSERT_TRUE(plan.ok());
  EXPECT_EQ(plan->num_sent(), 0);
  EXPECT_EQ(plan->offsets(), (std::vector<int64_t>{0, 0, 0}));
}

TEST(DispatchPlanTest, RefusesIdsOutsideTheExperts) {
  auto placement = Placement::Make(1, {0, 0});
  const std::vector<int32_t> ids = {2};
  auto plan = DispatchPlan::Make(ids, 1, *placement, nullptr);
  EXPECT_EQ(plan.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(plan.status().message().find("2"), absl::string_view::npos);
}

TEST(DispatchPlanTest, RefusesAPlacementForOtherRanks) {
  auto placement = Placement::Make(2, {0, 1});
  EXPECT_FALSE(DispatchPlan::Make({}, 1, *placement, nullptr).ok());
}

}  // namespace
}  // namespace moe
