// One case of tests/golden/layer (README.md there says what each tensor is) and what tests compare with it.
#ifndef MOE_TESTS_GOLDEN_LAYER_CASE_H_
#define MOE_TESTS_GOLDEN_LAYER_CASE_H_

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/device/device.h"
#include "core/device/host_copy.h"
#include "core/moe/gate.h"
#include "nlohmann/json.hpp"

namespace moe::testing {

struct LayerCase {
  std::string name;
  nlohmann::json info;
  int64_t T = 0, D = 0, F = 0, E = 0, K = 0;
  std::map<std::string, std::vector<double>> real;
  std::map<std::string, std::vector<int64_t>> integer;
  // A router bias is what the router's matrix multiplies a constant 1 with: such a case gets one more column of x (1), of the
  // router (the bias) and, zeros, of the experts. D counts it, `stored_D` does not.
  int64_t stored_D = 0;

  bool valid(int64_t t) const { return integer.at("token_valid_T")[t] != 0; }
  int64_t num_valid() const;
  std::vector<uint8_t> valid_T() const;
  bool has_padding() const { return num_valid() != T; }
  config::GateConfig gate_config() const;
  std::string expert_kind() const { return info["gate"]["expert"].get<std::string>(); }
  // The golden matrix with rows of the stored width, from one with rows of D: drops the added column.
  std::vector<double> Stored(const std::vector<double>& rows_of_D) const;
  std::vector<double> AddedColumn(const std::vector<double>& rows_of_D) const;
};
absl::StatusOr<LayerCase> LoadLayerCase(const std::string& name);

// What runs a case, and how near it must come: the largest difference by the largest golden value, or by `floor` where that
// is larger (values that are zero but for rounding).
struct Machine {
  std::string name;
  std::function<absl::StatusOr<std::unique_ptr<Device>>()> make;
  DType dtype;
  double tolerance, floor;
};
std::vector<Machine> Machines();
// Where softmax is saturated (all tokens on the same experts), the gradients of the losses on scores are differences of equal
// numbers: what is left of them is rounding of their size, not of its own.
Machine ForCase(Machine machine, const LayerCase& c);

// Returns the error in that measure.
double ExpectClose(const std::string& what, const std::vector<double>& got, const std::vector<double>& want, const Machine& machine);

// Host values to a tensor of the machine's dtype; ToHostDoubles of core/device/host_copy.h is the way back.
absl::Status Put(Device* device, const std::vector<double>& values, Out tensor);
absl::StatusOr<std::vector<int32_t>> GetIds(Device* device, In ids);

}  // namespace moe::testing

#define ASSERT_OK(expr)                                    \
  do {                                                     \
    const ::absl::Status status_ = (expr);                 \
    ASSERT_TRUE(status_.ok()) << #expr << ": " << status_; \
  } while (0)

#endif  // MOE_TESTS_GOLDEN_LAYER_CASE_H_
