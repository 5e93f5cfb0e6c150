// What tests of gates and experts share: parameters and activations on the reference device in float64, slopes by finite
// differences (core/device/tests/gradient.h).
#ifndef MOE_EXPERTS_TESTING_MODULE_TEST_H_
#define MOE_EXPERTS_TESTING_MODULE_TEST_H_

#include <cstdint>
#include <string>
#include <vector>

#include "core/device/tests/gradient.h"
#include "core/moe/expert.h"
#include "core/moe/gate.h"

namespace moe::testing {

class ModuleTest : public GradientTest {
 protected:
  ModuleContext Context() {
    ModuleContext c;
    c.device = device_.get();
    c.arena = &arena_;
    return c;
  }
  TensorView From(std::vector<int64_t> shape, const std::vector<double>& values) {
    const TensorView v = Zeros(std::move(shape));
    std::copy(values.begin(), values.end(), v.as<double>());
    return v;
  }
  TensorView Valid(const std::vector<uint8_t>& flags) {
    flags_.push_back(std::make_unique<std::vector<uint8_t>>(flags));
    return TensorView(flags_.back()->data(), DType::kU8, {static_cast<int64_t>(flags.size())});
  }
  static std::vector<double> Values(const TensorView& v) { return std::vector<double>(v.as<double>(), v.as<double>() + v.size()); }
  static std::vector<int32_t> Ids(const TensorView& v) { return std::vector<int32_t>(v.as<int32_t>(), v.as<int32_t>() + v.size()); }

  Arena arena_{device_.get()};
  ParamStore store_{device_.get(), DType::kF64};

 private:
  std::vector<std::unique_ptr<std::vector<uint8_t>>> flags_;
};

}  // namespace moe::testing

#define ASSERT_OK(expr)                                    \
  do {                                                     \
    const ::absl::Status status_ = (expr);                 \
    ASSERT_TRUE(status_.ok()) << #expr << ": " << status_; \
  } while (0)

#endif  // MOE_EXPERTS_TESTING_MODULE_TEST_H_
