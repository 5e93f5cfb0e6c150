#include "core/device/host_copy.h"

#include <algorithm>

namespace moe {

absl::StatusOr<TensorView> ToDevice(Arena* arena, DType dtype, const std::vector<int64_t>& shape, const void* values) {
  MOE_ASSIGN_OR_RETURN(const TensorView t, arena->Make(dtype, shape));
  MOE_RETURN_IF_ERROR(arena->device()->CopyFromHost(t, values));
  return t;
}

absl::StatusOr<TensorView> DoublesToDevice(Arena* arena, DType dtype, const std::vector<int64_t>& shape, const double* values) {
  MOE_ASSIGN_OR_RETURN(const TensorView wide, ToDevice(arena, DType::kF64, shape, values));
  MOE_ASSIGN_OR_RETURN(const TensorView t, arena->Make(dtype, shape));
  MOE_RETURN_IF_ERROR(arena->device()->Copy(wide, t));
  return t;
}

absl::StatusOr<std::vector<double>> ToHostDoubles(Device* device, In x) {
  std::vector<double> out(x.size());
  if (x.dtype() == DType::kF64) {
    MOE_RETURN_IF_ERROR(device->CopyToHost(out.data(), x));
    return out;
  }
  std::vector<float> f(x.size());
  MOE_RETURN_IF_ERROR(device->CopyToHost(f.data(), x));
  std::copy(f.begin(), f.end(), out.begin());
  return out;
}

}  // namespace moe
