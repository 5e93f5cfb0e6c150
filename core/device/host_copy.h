// Small tensors between host memory and the device: indices, coefficients, statistics.
#ifndef MOE_CORE_DEVICE_HOST_COPY_H_
#define MOE_CORE_DEVICE_HOST_COPY_H_

#include <vector>

#include "core/device/arena.h"

namespace moe {

// A tensor in the arena with the host's values, which are of `dtype`.
absl::StatusOr<TensorView> ToDevice(Arena* arena, DType dtype, const std::vector<int64_t>& shape, const void* values);
// The same from float64 to a tensor of the floating-point type `dtype`.
absl::StatusOr<TensorView> DoublesToDevice(Arena* arena, DType dtype, const std::vector<int64_t>& shape, const double* values);
// The values of a contiguous floating-point tensor.
absl::StatusOr<std::vector<double>> ToHostDoubles(Device* device, In x);

}  // namespace moe
#endif  // MOE_CORE_DEVICE_HOST_COPY_H_
