// Rows to the order of experts and back. The rows that are read lie anywhere: those of the next index are asked for
// while the present one is worked on, because no hardware prefetcher can guess them.
#include <cstring>

#include "core/device/check.h"
#include "core/device/cpu/cpu_device.h"
#include "core/device/cpu/pieces.h"

namespace moe {
namespace {

constexpr int64_t kFloatsOfLine = 16;

inline void Prefetch(const float* row, int64_t size) {
  for (int64_t i = 0; i < size; i += kFloatsOfLine) __builtin_prefetch(row + i);
}

}  // namespace

absl::Status CpuDevice::GatherRows(In x_TD, In index_N, Out y_ND) {
  if (x_TD.dtype() != DType::kF32) return ReferenceDevice::GatherRows(x_TD, index_N, y_ND);
  MOE_RETURN_IF_ERROR(CheckGatherRows(x_TD, index_N, y_ND));
  const int32_t* index = index_N.as<int32_t>();
  const int64_t D = x_TD.dim(1);
  ForRowBlocks(&pool_, y_ND.dim(0), D, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      if (n + 1 < end && index[n + 1] >= 0) Prefetch(Row<float>(x_TD, index[n + 1]), D);
      if (index[n] < 0) std::memset(Row<float>(y_ND, n), 0, D * sizeof(float));
      else std::memcpy(Row<float>(y_ND, n), Row<float>(x_TD, index[n]), D * sizeof(float));
    }
  });
  return absl::OkStatus();
}

absl::Status CpuDevice::Combine(In rows_ND, In pos_TK, In w_TK, Out y_TD, bool accumulate) {
  if (y_TD.dtype() != DType::kF32) return ReferenceDevice::Combine(rows_ND, pos_TK, w_TK, y_TD, accumulate);
  MOE_RETURN_IF_ERROR(CheckCombine(rows_ND, pos_TK, w_TK, y_TD));
  constexpr int64_t kSlots = 16;   // of one kernel call; more experts per token take more calls
  const int64_t D = y_TD.dim(1), K = pos_TK.dim(1);
  ForRowBlocks(&pool_, y_TD.dim(0), D, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      if (t + 1 < end) {
        const int32_t* next = Row<int32_t>(pos_TK, t + 1);
        for (int64_t k = 0; k < K; ++k)
          if (next[k] >= 0) Prefetch(Row<float>(rows_ND, next[k]), D);
      }
      const int32_t* pos = Row<int32_t>(pos_TK, t);
      const float* rows[kSlots];
      float w[kSlots];
      int64_t count = 0;
      bool add = accumulate;
      for (int64_t k = 0; k < K; ++k) {
        if (pos[k] < 0) continue;
        rows[count] = Row<float>(rows_ND, pos[k]);
        w[count] = w_TK.defined() ? Row<float>(w_TK, t)[k] : 1.0f;
        if (++count < kSlots) continue;
        kernels_.rows.combine(rows, w, count, Row<float>(y_TD, t), D, add);
        add = true;
        count = 0;
      }
      if (count > 0 || !add) kernels_.rows.combine(rows, w, count, Row<float>(y_TD, t), D, add);
    }
  });
  return absl::OkStatus();
}

absl::Status CpuDevice::CombineBackward(In rows_ND, In pos_TK, In w_TK, In dy_TD, Out drows_ND, Out dw_TK) {
  if (dy_TD.dtype() != DType::kF32) return ReferenceDevice::CombineBackward(rows_ND, pos_TK, w_TK, dy_TD, drows_ND, dw_TK);
  MOE_RETURN_IF_ERROR(CheckCombineBackward(rows_ND, pos_TK, w_TK, dy_TD, drows_ND, dw_TK));
  const int64_t D = dy_TD.dim(1), K = pos_TK.dim(1);
  ForRowBlocks(&pool_, dy_TD.dim(0), D, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int32_t* pos = Row<int32_t>(pos_TK, t);
      if (t + 1 < end) {
        const int32_t* next = Row<int32_t>(pos_TK, t + 1);
        for (int64_t k = 0; k < K; ++k) {
          if (next[k] < 0) continue;
          Prefetch(Row<float>(rows_ND, next[k]), D);
          Prefetch(Row<float>(drows_ND, next[k]), D);
        }
      }
      for (int64_t k = 0; k < K; ++k) {
        Row<float>(dw_TK, t)[k] =
            pos[k] < 0 ? 0.0f : kernels_.rows.combine_grad(Row<float>(rows_ND, pos[k]), Row<float>(w_TK, t)[k], Row<float>(dy_TD, t), Row<float>(drows_ND, pos[k]), D);
      }
    }
  });
  return absl::OkStatus();
}

}  // namespace moe
