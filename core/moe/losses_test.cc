#include "core/moe/losses.h"

#include "gtest/gtest.h"

namespace moe {
namespace {

config::GateConfig Config(const char* convention) {
  config::GateConfig c;
  c.set_aux_loss(convention);
  c.set_aux_loss_coef(0.5);
  c.set_z_loss_coef(0.25);
  return c;
}

RoutingSums Sums(int64_t layers, int64_t experts, int64_t tokens, std::vector<int64_t> count, std::vector<double> prob) {
  RoutingSums s(layers, experts);
  s.tokens = tokens;
  s.count = std::move(count);
  s.prob = std::move(prob);
  return s;
}

// Uniform routing gives 1 in the switch convention and K in hf; collapse on K experts gives E/K and E.
TEST(LossesTest, ConventionsAtBalanceAndCollapse) {
  const auto balanced = Sums(1, 4, 8, {4, 4, 4, 4}, {2, 2, 2, 2});
  EXPECT_DOUBLE_EQ(ComputeRoutingLosses(Config("switch"), 2, balanced).aux, 1);
  EXPECT_DOUBLE_EQ(ComputeRoutingLosses(Config("hf"), 2, balanced).aux, 2);
  const auto collapsed = Sums(1, 4, 8, {8, 8, 0, 0}, {4, 4, 0, 0});
  EXPECT_DOUBLE_EQ(ComputeRoutingLosses(Config("switch"), 2, collapsed).aux, 2);
  EXPECT_DOUBLE_EQ(ComputeRoutingLosses(Config("hf"), 2, collapsed).aux, 4);
}

// hf pools the layers before the product: two layers that are unbalanced in opposite ways are balanced together.
TEST(LossesTest, HfPoolsLayersAndSwitchDoesNot) {
  const auto s = Sums(2, 2, 4, {4, 0, 0, 4}, {4, 0, 0, 4});
  EXPECT_DOUBLE_EQ(ComputeRoutingLosses(Config("hf"), 1, s).aux, 1);
  EXPECT_DOUBLE_EQ(ComputeRoutingLosses(Config("switch"), 1, s).aux, 2);
}

// The gradient is the slope of coef * aux in the sums of probabilities.
TEST(LossesTest, GradientIsTheSlope) {
  for (const char* convention : {"switch", "hf"}) {
    auto s = Sums(2, 3, 5, {4, 3, 3, 1, 5, 4}, {2.0, 1.5, 1.5, 1.1, 2.2, 1.7});
    const auto base = ComputeRoutingLosses(Config(convention), 2, s);
    for (size_t i = 0; i < s.prob.size(); ++i) {
      auto moved = s;
      moved.prob[i] += 1e-3;
      EXPECT_NEAR((ComputeRoutingLosses(Config(convention), 2, moved).aux - base.aux) / 1e-3 * 0.5, base.aux_gradient[i], 1e-9) << convention << i;
    }
  }
}

TEST(LossesTest, NoTokensNoLoss) {
  const auto l = ComputeRoutingLosses(Config("switch"), 2, RoutingSums(2, 4));
  EXPECT_EQ(l.aux, 0);
  EXPECT_EQ(l.z_coef, 0);
  EXPECT_TRUE(l.aux_gradient.empty());
}

}  // namespace
}  // namespace moe
