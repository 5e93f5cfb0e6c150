#include "core/device/tests/gradient.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "core/base/random.h"

namespace moe::testing {

TensorView GradientTest::Zeros(std::vector<int64_t> shape) {
  int64_t n = 1;
  for (int64_t d : shape) n *= d;
  memory_.push_back(std::make_unique<std::vector<double>>(n, 0.0));
  return TensorView(memory_.back()->data(), DType::kF64, shape);
}

TensorView GradientTest::Random(std::vector<int64_t> shape, double stddev, double mean) {
  const TensorView v = Zeros(std::move(shape));
  ++seed_;
  for (int64_t i = 0; i < v.size(); ++i) v.as<double>()[i] = mean + stddev * RandomNormal(seed_, i);
  return v;
}

TensorView GradientTest::Ints(std::vector<int64_t> shape, const std::vector<int32_t>& values) {
  memory_.push_back(std::make_unique<std::vector<double>>(values.size()));
  std::memcpy(memory_.back()->data(), values.data(), values.size() * sizeof(int32_t));
  return TensorView(memory_.back()->data(), DType::kI32, shape);
}

double GradientTest::Dot(In weights, In y) {
  double sum = 0;
  for (int64_t i = 0; i < y.size(); ++i) sum += weights.as<double>()[i] * y.as<double>()[i];
  return sum;
}

void GradientTest::ExpectGradient(const std::string& name, const std::function<double()>& loss, const TensorView& x, const TensorView& analytic) {
  ASSERT_EQ(x.shape(), analytic.shape());
  const double* a = analytic.as<double>();
  double largest = 0;
  for (int64_t i = 0; i < x.size(); ++i) largest = std::max(largest, std::abs(a[i]));
  EXPECT_GT(largest, 0) << name << ": the whole gradient is 0, nothing would be tested";
  for (int64_t i = 0; i < x.size(); ++i) {
    // Fourth-order stencil: the error of h^4 and the rounding of 1e-16 / h both stay far below 1e-6.
    double& at = x.as<double>()[i];
    const double before = at, h = 1e-3;
    double f[4];
    const double steps[4] = {-2, -1, 1, 2};
    for (int k = 0; k < 4; ++k) {
      at = before + steps[k] * h;
      f[k] = loss();
    }
    at = before;
    const double numeric = (f[0] - 8 * f[1] + 8 * f[2] - f[3]) / (12 * h);
    ASSERT_NEAR(a[i], numeric, 1e-6 * std::max(std::abs(numeric), 1e-3 * largest)) << name << "[" << i << "] of " << x.DebugString();
  }
}

}  // namespace moe::testing
