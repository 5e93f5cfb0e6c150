// Runs one generic body for float32 or float64, after the operands have been checked.
#ifndef MOE_CORE_DEVICE_REFERENCE_DISPATCH_H_
#define MOE_CORE_DEVICE_REFERENCE_DISPATCH_H_

#include "core/device/check.h"
#include "core/device/rows.h"

namespace moe {

// body(T()) with T = float or double; the body names it `using T = decltype(tag)`.
template <typename Body>
absl::Status ForFloat(DType dtype, Body body) {
  if (dtype == DType::kF32) body(float());
  else body(double());
  return absl::OkStatus();
}

}  // namespace moe
#endif  // MOE_CORE_DEVICE_REFERENCE_DISPATCH_H_
