// Random numbers of tokens do not depend on which rows a rank holds; work on weights is done now or left for later.
#include "core/moe/module_context.h"

#include <vector>

#include "gtest/gtest.h"

namespace moe {
namespace {

class TokenNoiseTest : public ::testing::Test {
 protected:
  static constexpr int64_t kWidth = 5;
  absl::StatusOr<std::vector<double>> Noise(int64_t rows, int64_t first_token, const std::vector<TokenRun>* runs) {
    ModuleContext ctx;
    ctx.device = device_.get();
    ctx.noise_key = 77;
    ctx.first_token = first_token;
    ctx.token_runs = runs;
    std::vector<double> out(rows * kWidth, -100.0);
    MOE_RETURN_IF_ERROR(TokenNoise(ctx, 0.5, 2, TensorView(out.data(), DType::kF64, {rows, kWidth})));
    return out;
  }
  std::unique_ptr<Device> device_ = MakeReferenceDevice();
};

TEST_F(TokenNoiseTest, RunsGiveTheNumbersOfTheirTokens) {
  const auto all = Noise(20, 1000, nullptr);
  ASSERT_TRUE(all.ok()) << all.status();
  for (double v : *all) {
    EXPECT_GE(v, 0.5);
    EXPECT_LE(v, 2);
  }
  // Rows of tokens 1012 .. 1015, none, 1003, 1000 .. 1001.
  const std::vector<TokenRun> runs = {{4, 1012}, {0, 7}, {1, 1003}, {2, 1000}};
  const auto some = Noise(7, 55, &runs);   // first_token says nothing then
  ASSERT_TRUE(some.ok()) << some.status();
  std::vector<double> want;
  for (int64_t token : {12, 13, 14, 15, 3, 0, 1}) want.insert(want.end(), all->begin() + token * kWidth, all->begin() + (token + 1) * kWidth);
  EXPECT_EQ(*some, want);
  const std::vector<TokenRun> cut = {{13, 1000}, {7, 1013}};
  EXPECT_EQ(*Noise(20, 0, &cut), *all);
  const std::vector<TokenRun> none;
  EXPECT_TRUE(Noise(0, 0, &none).ok());
}

TEST_F(TokenNoiseTest, RunsMustCoverTheRows) {
  for (int64_t rows : {2, 4}) {   // the longer one would be written past its end
    const std::vector<TokenRun> runs = {{3, 0}};
    EXPECT_NE(Noise(rows, 0, &runs).status().message().find("3 rows"), absl::string_view::npos);
  }
}

TEST(WeightGradTest, NowOrLater) {
  int calls = 0;
  const auto work = [&calls]() -> absl::Status {
    ++calls;
    return InvalidArgument("as told");
  };
  ModuleContext ctx;
  EXPECT_FALSE(WeightGrad(ctx, work).ok());
  EXPECT_EQ(calls, 1);
  std::vector<std::function<absl::Status()>> later;
  ctx.later = &later;
  EXPECT_TRUE(WeightGrad(ctx, work).ok());
  EXPECT_EQ(calls, 1);
  ASSERT_EQ(later.size(), 1u);
  EXPECT_EQ(later[0]().message(), "as told");
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace moe
