#include "core/device/check.h"
#include "core/device/cpu/cpu_device.h"
#include "core/device/cpu/pieces.h"

namespace moe {

absl::Status CpuDevice::Rotary(Out x_TQ, int64_t head_dim, In positions_T, In cos_PC, In sin_PC, bool inverse) {
  if (x_TQ.dtype() != DType::kF32) return ReferenceDevice::Rotary(x_TQ, head_dim, positions_T, cos_PC, sin_PC, inverse);
  MOE_RETURN_IF_ERROR(CheckRotary(x_TQ, head_dim, positions_T, cos_PC, sin_PC));
  const int32_t* positions = positions_T.as<int32_t>();
  const int64_t heads = x_TQ.dim(1) / head_dim;
  ForRowBlocks(&pool_, x_TQ.dim(0), x_TQ.dim(1), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      kernels_.rows.rotary(Row<float>(x_TQ, t), heads, head_dim / 2, Row<float>(cos_PC, positions[t]), Row<float>(sin_PC, positions[t]), inverse);
  });
  return absl::OkStatus();
}

}  // namespace moe
