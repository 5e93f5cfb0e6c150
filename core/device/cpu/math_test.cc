// The vector functions against libm in float64, on every instruction set that this machine has: relative error over
// their whole range, special values, and every length of tail (with guards behind the last element).
#include <cmath>
#include <limits>
#include <vector>

#include "core/device/cpu/isa.h"
#include "core/device/cpu/kernels.h"
#include "gtest/gtest.h"

namespace moe {
namespace {

constexpr float kInf = std::numeric_limits<float>::infinity();
constexpr float kNan = std::numeric_limits<float>::quiet_NaN();

using Function = void (*)(const float*, float*, int64_t);

class MathTest : public testing::TestWithParam<Isa> {
 protected:
  const ElementwiseKernels& k() { return KernelsOf(GetParam()).elementwise; }
  float Eval(Function f, float x) {
    float y = -1;
    f(&x, &y, 1);
    return y;
  }
  // Largest |f - want| / |want| over [lo, hi].
  double WorstRelative(Function f, double (*want)(double), float lo, float hi) {
    constexpr int kPoints = 200003;
    std::vector<float> x(kPoints), y(kPoints);
    for (int i = 0; i < kPoints; ++i) x[i] = lo + (hi - lo) * (static_cast<float>(i) / (kPoints - 1));
    f(x.data(), y.data(), kPoints);
    double worst = 0;
    for (int i = 0; i < kPoints; ++i) {
      const double w = want(x[i]);
      worst = std::max(worst, std::fabs(y[i] - w) / std::fabs(w));
    }
    return worst;
  }
};

double ExactExp(double x) { return std::exp(x); }
double ExactSigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double ExactNormalCdf(double x) { return 0.5 * std::erfc(-x * 0.70710678118654752440); }

TEST_P(MathTest, Exp) {
  EXPECT_LT(WorstRelative(k().exp, ExactExp, -86.4f, 88.7f), 2e-7);
  EXPECT_LT(WorstRelative(k().exp, ExactExp, -1e-3f, 1e-3f), 1.3e-7);
  EXPECT_EQ(Eval(k().exp, 0), 1);
  EXPECT_EQ(Eval(k().exp, -87), 0);
  EXPECT_EQ(Eval(k().exp, -1e30f), 0);
  EXPECT_EQ(Eval(k().exp, -kInf), 0);
  EXPECT_EQ(Eval(k().exp, 89), kInf);
  EXPECT_EQ(Eval(k().exp, 1e30f), kInf);
  EXPECT_EQ(Eval(k().exp, kInf), kInf);
  EXPECT_TRUE(std::isnan(Eval(k().exp, kNan)));
}

TEST_P(MathTest, Sigmoid) {
  EXPECT_LT(WorstRelative(k().sigmoid, ExactSigmoid, -86, 86), 3e-7);
  EXPECT_EQ(Eval(k().sigmoid, 0), 0.5f);
  EXPECT_EQ(Eval(k().sigmoid, kInf), 1);
  EXPECT_EQ(Eval(k().sigmoid, -kInf), 0);
  EXPECT_TRUE(std::isnan(Eval(k().sigmoid, kNan)));
}

TEST_P(MathTest, NormalCdf) {
  EXPECT_LT(WorstRelative(k().normal_cdf, ExactNormalCdf, -5, 9), GetParam() == Isa::kGeneric ? 1e-6 : 5e-7);
  // Far down the tail x^2 itself needs more than float32 holds; without fused multiply-add its rounding error stays.
  EXPECT_LT(WorstRelative(k().normal_cdf, ExactNormalCdf, -12.5f, -5), GetParam() == Isa::kGeneric ? 8e-6 : 2e-6);
  EXPECT_EQ(Eval(k().normal_cdf, -20), 0);
  EXPECT_EQ(Eval(k().normal_cdf, 20), 1);
  EXPECT_TRUE(std::isnan(Eval(k().normal_cdf, kNan)));
}

TEST_P(MathTest, TailsTouchNothingBehindTheEnd) {
  for (int size = 0; size < 40; ++size) {
    std::vector<float> x(size + 64, 7.0f), y(size + 64, 3.0f);
    for (int i = 0; i < size; ++i) x[i] = 0.1f * i;
    k().exp(x.data(), y.data(), size);
    for (int i = 0; i < size + 64; ++i) {
      EXPECT_NEAR(y[i], i < size ? std::exp(0.1 * i) : 3.0, 1e-5) << "size " << size << " element " << i;
    }
    k().add(x.data(), y.data(), size);
    for (int i = 0; i < size; ++i) EXPECT_NEAR(y[i], std::exp(0.1 * i) + 0.1 * i, 1e-5);
    EXPECT_EQ(y[size], 3.0f);
  }
}

std::string IsaName(const testing::TestParamInfo<Isa>& info) { return Name(info.param); }
INSTANTIATE_TEST_SUITE_P(Isas, MathTest, testing::ValuesIn(AvailableIsas()), IsaName);

}  // namespace
}  // namespace moe
