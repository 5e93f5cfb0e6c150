#include "core/train/lr_schedule.h"

#include "gtest/gtest.h"

namespace moe {
namespace {

config::OptimizerConfig Config(int64_t warmup) {
  config::OptimizerConfig c;
  c.set_lr(0.003);
  c.set_warmup_steps(warmup);
  c.set_decay_steps(0);
  return c;
}

// The rates of tests/golden/mixtral_tiny (ten steps, three of warm-up, floor 0.1).
TEST(LearningRateTest, MatchesTheGoldenRun) {
  const double want[] = {0.001, 0.002, 0.003, 0.0028663079716682656, 0.0024917112325092907, 0.0019504032608410242,
                         0.0013495967391589758, 0.0008082887674907099, 0.00043369202833173437, 0.0003};
  for (int s = 0; s < 10; ++s) EXPECT_NEAR(LearningRate(Config(3), 10, s), want[s], 1e-15) << s;
}

TEST(LearningRateTest, NoWarmupStartsAtThePeakAndStaysAtTheFloor) {
  EXPECT_DOUBLE_EQ(LearningRate(Config(0), 10, 0), 0.003);
  EXPECT_NEAR(LearningRate(Config(0), 10, 9), 0.0003, 1e-15);
  EXPECT_NEAR(LearningRate(Config(0), 10, 50), 0.0003, 1e-15);
  EXPECT_NEAR(LearningRate(Config(0), 1, 0), 0.0003, 1e-15);
}

TEST(LearningRateTest, DecayStepsReplaceTheLengthOfTheRun) {
  config::OptimizerConfig c = Config(3);
  c.set_decay_steps(10);
  EXPECT_NEAR(LearningRate(c, 1000, 9), 0.0003, 1e-15);
}

}  // namespace
}  // namespace moe
