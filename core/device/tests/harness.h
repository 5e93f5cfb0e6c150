// One suite for every implementation of Device. An operation runs on the float64 reference and on the devices under
// test with the same inputs; outputs start as NaN, so that an element nobody wrote is found, and rows may be padded
// with a pattern that must survive. Where an implementation has several devices (thread counts), all of them must
// give the same bits.
#ifndef MOE_CORE_DEVICE_TESTS_HARNESS_H_
#define MOE_CORE_DEVICE_TESTS_HARNESS_H_

#include <functional>
#include <memory>
#include <ostream>
#include <string>
#include <vector>

#include "core/device/device.h"
#include "gtest/gtest.h"

namespace moe::testing {

struct Implementation {
  std::string name;
  DType dtype;
  std::vector<std::function<absl::StatusOr<std::unique_ptr<Device>>()>> makers;
};
std::vector<Implementation> Implementations();
inline void PrintTo(const Implementation& i, std::ostream* os) { *os << i.name; }

// One tensor on every device; [0] is the float64 reference.
struct Operand {
  std::vector<TensorView> views;
  std::shared_ptr<std::vector<Buffer>> memory;
  const TensorView& operator[](size_t device) const { return views[device]; }
};

class DeviceTest : public ::testing::TestWithParam<Implementation> {
 protected:
  void SetUp() override;

  // ---- operands: values are rounded to float32 first, so that all devices see the same numbers
  Operand Random(const std::vector<int64_t>& shape, double stddev = 1, double mean = 0);
  Operand Values(const std::vector<int64_t>& shape, const std::vector<double>& values);
  Operand Poison(const std::vector<int64_t>& shape);                                          // NaN everywhere
  Operand Ints(const std::vector<int64_t>& shape, const std::vector<int64_t>& values, DType dtype = DType::kI32);
  Operand PoisonInts(const std::vector<int64_t>& shape);
  Operand Absent();
  std::vector<int64_t> RandomInts(int64_t n, int64_t low, int64_t high);   // in [low, high)
  double Uniform();

  // ---- running
  using View = std::function<const TensorView&(const Operand&)>;
  void Run(const std::function<absl::Status(Device*, const View&)>& op);
  // The values of the reference (first) and of the devices; bits of the devices are compared.
  std::vector<double> RunScalar(const std::function<absl::StatusOr<double>(Device*, const View&)>& op);
  // Every device refuses with INVALID_ARGUMENT and the same text, in which all `parts` occur.
  void ExpectRefused(const std::function<absl::Status(Device*, const View&)>& op, const std::vector<std::string>& parts);

  // ---- comparing: |got - wanted| <= tol * (1 + |wanted|) with the reference (tol of float32; float64 is held to
  // 1e-12), the same bits on all devices, padding untouched, nothing NaN.
  void ExpectClose(const char* name, const Operand& o, double tol = 2e-6);
  void ExpectEqual(const char* name, const Operand& o);
  // Elements of device 1 as doubles, row-major.
  std::vector<double> Got(const Operand& o, size_t device = 1);

  // body(rows, columns) for all pairs, rows padded every other time; the trace tells shape, padding and seed.
  void ForShapes(const std::vector<int64_t>& rows, const std::vector<int64_t>& columns, const std::function<void(int64_t, int64_t)>& body);

  DType dtype() const { return GetParam().dtype; }
  size_t num_devices() const { return devices_.size(); }
  Device* device(size_t i) { return devices_[i].get(); }

  int64_t pad_ = 0;         // elements between rows of the next rank-2 operands
  uint64_t seed_ = 20240601;

 private:
  Operand Make(const std::vector<int64_t>& shape, DType tested, DType reference);
  void ExpectPaddingIntact(const char* name, const Operand& o);
  void ExpectSameBits(const char* name, const Operand& o);

  std::vector<std::unique_ptr<Device>> devices_;
};

// Rows of most tests.
const std::vector<int64_t>& OddSizes();

std::string ImplementationName(const ::testing::TestParamInfo<Implementation>& info);

}  // namespace moe::testing

#define MOE_INSTANTIATE_DEVICE_TEST(Suite) \
  INSTANTIATE_TEST_SUITE_P(Devices, Suite, ::testing::ValuesIn(::moe::testing::Implementations()), ::moe::testing::ImplementationName)

#define EXPECT_OK(expr)                                    \
  do {                                                     \
    const ::absl::Status status_ = (expr);                 \
    EXPECT_TRUE(status_.ok()) << #expr << ": " << status_; \
  } while (0)

#endif  // MOE_CORE_DEVICE_TESTS_HARNESS_H_
