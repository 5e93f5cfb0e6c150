#include <cstring>

#include "core/device/check.h"
#include "core/device/cpu/cpu_device.h"
#include "core/device/cpu/pieces.h"

namespace moe {

absl::Status CpuDevice::EmbeddingForward(In ids_T, In w_VD, Out y_TD) {
  if (y_TD.dtype() != DType::kF32) return ReferenceDevice::EmbeddingForward(ids_T, w_VD, y_TD);
  MOE_RETURN_IF_ERROR(CheckEmbedding("EmbeddingForward", ids_T, "y_TD", y_TD, "w_VD", w_VD));
  const int32_t* ids = ids_T.as<int32_t>();
  ForRowBlocks(&pool_, y_TD.dim(0), y_TD.dim(1), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) std::memcpy(Row<float>(y_TD, t), Row<float>(w_VD, ids[t]), y_TD.dim(1) * sizeof(float));
  });
  return absl::OkStatus();
}

// A worker owns columns, not tokens: each element of dw then gets its tokens in order, and nobody else writes to it.
absl::Status CpuDevice::EmbeddingBackward(In ids_T, In dy_TD, Out dw_VD) {
  if (dy_TD.dtype() != DType::kF32) return ReferenceDevice::EmbeddingBackward(ids_T, dy_TD, dw_VD);
  MOE_RETURN_IF_ERROR(CheckEmbedding("EmbeddingBackward", ids_T, "dy_TD", dy_TD, "dw_VD", dw_VD));
  constexpr int64_t kColumnsOfTask = 32;   // two cache lines
  const int32_t* ids = ids_T.as<int32_t>();
  const int64_t T = dy_TD.dim(0), D = dy_TD.dim(1);
  pool_.ParallelFor((D + kColumnsOfTask - 1) / kColumnsOfTask, [&](int64_t task) {
    const int64_t first = task * kColumnsOfTask, n = std::min(kColumnsOfTask, D - first);
    for (int64_t t = 0; t < T; ++t) kernels_.elementwise.add(Row<float>(dy_TD, t) + first, Row<float>(dw_VD, ids[t]) + first, n);
  });
  return absl::OkStatus();
}

}  // namespace moe
