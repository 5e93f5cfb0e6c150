// Multiplicative noise: uniform numbers and the elementwise product.
#include "core/base/random.h"
#include "core/device/reference/dispatch.h"
#include "core/device/reference/reference_device.h"

namespace moe {

absl::Status ReferenceDevice::Multiply(In a, In b, Out y) {
  MOE_RETURN_IF_ERROR(CheckMultiply(a, b, y));
  return ForFloat(y.dtype(), [&](auto tag) {
    using T = decltype(tag);
    for (int64_t i = 0; i < y.size(); ++i) y.as<T>()[i] = a.as<T>()[i] * b.as<T>()[i];
  });
}

absl::Status ReferenceDevice::RandomUniform(Out y, uint64_t key, int64_t first, double low, double high) {
  MOE_RETURN_IF_ERROR(CheckRandomUniform(y));
  return ForFloat(y.dtype(), [&](auto tag) {
    using T = decltype(tag);
    for (int64_t i = 0; i < y.size(); ++i) y.as<T>()[i] = static_cast<T>(low + (high - low) * moe::RandomUniform(key, static_cast<uint64_t>(first + i)));
  });
}

}  // namespace moe
