// Finite differences in float64 against the analytic backward of the reference device.
#ifndef MOE_CORE_DEVICE_TESTS_GRADIENT_H_
#define MOE_CORE_DEVICE_TESTS_GRADIENT_H_

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/device/device.h"
#include "gtest/gtest.h"

namespace moe::testing {

class GradientTest : public ::testing::Test {
 protected:
  TensorView Random(std::vector<int64_t> shape, double stddev = 1, double mean = 0);
  TensorView Zeros(std::vector<int64_t> shape);
  TensorView Ints(std::vector<int64_t> shape, const std::vector<int32_t>& values);

  // <weights, y>: a loss whose gradient with respect to y is `weights`.
  static double Dot(In weights, In y);
  // d loss / d x by central differences agrees with `analytic` to 1e-6 of the larger of the element and a thousandth
  // of the largest element.
  void ExpectGradient(const std::string& name, const std::function<double()>& loss, const TensorView& x, const TensorView& analytic);
  void Ok(const absl::Status& status) { ASSERT_TRUE(status.ok()) << status; }

  std::unique_ptr<Device> device_ = MakeReferenceDevice();

 private:
  std::vector<std::unique_ptr<std::vector<double>>> memory_;
  uint64_t seed_ = 4242;
};

}  // namespace moe::testing
#endif  // MOE_CORE_DEVICE_TESTS_GRADIENT_H_
