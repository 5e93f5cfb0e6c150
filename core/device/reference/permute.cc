// Rows to the order of experts and back.
#include "core/device/reference/dispatch.h"
#include "core/device/reference/reference_device.h"

namespace moe {

absl::Status ReferenceDevice::GatherRows(In x_TD, In index_N, Out y_ND) {
  MOE_RETURN_IF_ERROR(CheckGatherRows(x_TD, index_N, y_ND));
  return ForFloat(x_TD.dtype(), [&](auto tag) {
    using T = decltype(tag);
    for (int64_t n = 0; n < y_ND.dim(0); ++n) {
      const int32_t from = index_N.as<int32_t>()[n];
      for (int64_t i = 0; i < y_ND.dim(1); ++i) Row<T>(y_ND, n)[i] = from < 0 ? T(0) : Row<T>(x_TD, from)[i];
    }
  });
}

absl::Status ReferenceDevice::Combine(In rows_ND, In pos_TK, In w_TK, Out y_TD, bool accumulate) {
  MOE_RETURN_IF_ERROR(CheckCombine(rows_ND, pos_TK, w_TK, y_TD));
  return ForFloat(y_TD.dtype(), [&](auto tag) {
    using T = decltype(tag);
    for (int64_t t = 0; t < y_TD.dim(0); ++t) {
      T* y = Row<T>(y_TD, t);
      for (int64_t i = 0; i < y_TD.dim(1); ++i) {
        double sum = accumulate ? y[i] : T(0);
        for (int64_t k = 0; k < pos_TK.dim(1); ++k) {
          const int32_t pos = Row<int32_t>(pos_TK, t)[k];
          if (pos < 0) continue;
          sum += (w_TK.defined() ? static_cast<double>(Row<T>(w_TK, t)[k]) : 1.0) * Row<T>(rows_ND, pos)[i];
        }
        y[i] = static_cast<T>(sum);
      }
    }
  });
}

absl::Status ReferenceDevice::CombineBackward(In rows_ND, In pos_TK, In w_TK, In dy_TD, Out drows_ND, Out dw_TK) {
  MOE_RETURN_IF_ERROR(CheckCombineBackward(rows_ND, pos_TK, w_TK, dy_TD, drows_ND, dw_TK));
  return ForFloat(dy_TD.dtype(), [&](auto tag) {
    using T = decltype(tag);
    for (int64_t t = 0; t < dy_TD.dim(0); ++t) {
      const T* dy = Row<T>(dy_TD, t);
      for (int64_t k = 0; k < pos_TK.dim(1); ++k) {
        const int32_t pos = Row<int32_t>(pos_TK, t)[k];
        double dot = 0;
        if (pos >= 0) {
          const T* row = Row<T>(rows_ND, pos);
          T* drow = Row<T>(drows_ND, pos);
          const T w = Row<T>(w_TK, t)[k];
          for (int64_t i = 0; i < dy_TD.dim(1); ++i) {
            dot += static_cast<double>(dy[i]) * row[i];
            drow[i] = w * dy[i];
          }
        }
        Row<T>(dw_TK, t)[k] = static_cast<T>(dot);
      }
    }
  });
}

}  // namespace moe
