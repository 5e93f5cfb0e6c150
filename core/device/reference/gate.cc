// What gates do to a matrix of scores: the K largest per row, columns by id, rows normalised, shifted and masked.
#include <algorithm>
#include <cmath>
#include <vector>

#include "core/device/reference/dispatch.h"
#include "core/device/reference/reference_device.h"

namespace moe {

absl::Status ReferenceDevice::TopK(In s_TE, Out ids_TK) {
  MOE_RETURN_IF_ERROR(CheckTopK(s_TE, ids_TK));
  absl::Status status;
  MOE_RETURN_IF_ERROR(ForFloat(s_TE.dtype(), [&](auto tag) {
    using T = decltype(tag);
    const int64_t E = s_TE.dim(1), K = ids_TK.dim(1);
    std::vector<int32_t> order(E);
    for (int64_t t = 0; t < s_TE.dim(0); ++t) {
      const T* s = Row<T>(s_TE, t);
      for (int64_t e = 0; e < E; ++e) {
        if (!std::isfinite(s[e])) {
          status = TopKNotFinite(t, e, s[e]);
          return;
        }
        order[e] = static_cast<int32_t>(e);
      }
      std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return s[a] > s[b]; });
      std::copy(order.begin(), order.begin() + K, Row<int32_t>(ids_TK, t));
    }
  }));
  return status;
}

absl::Status ReferenceDevice::GatherColumns(In p_TE, In ids_TK, Out w_TK) {
  MOE_RETURN_IF_ERROR(CheckGatherColumns(p_TE, ids_TK, w_TK));
  return ForFloat(p_TE.dtype(), [&](auto tag) {
    using T = decltype(tag);
    for (int64_t t = 0; t < ids_TK.dim(0); ++t) {
      for (int64_t k = 0; k < ids_TK.dim(1); ++k) {
        const int32_t id = Row<int32_t>(ids_TK, t)[k];
        Row<T>(w_TK, t)[k] = id < 0 ? T(0) : Row<T>(p_TE, t)[id];
      }
    }
  });
}

absl::Status ReferenceDevice::ScatterColumns(In dw_TK, In ids_TK, Out dp_TE) {
  MOE_RETURN_IF_ERROR(CheckScatterColumns(dw_TK, ids_TK, dp_TE));
  return ForFloat(dw_TK.dtype(), [&](auto tag) {
    using T = decltype(tag);
    for (int64_t t = 0; t < ids_TK.dim(0); ++t) {
      for (int64_t k = 0; k < ids_TK.dim(1); ++k) {
        const int32_t id = Row<int32_t>(ids_TK, t)[k];
        if (id >= 0) Row<T>(dp_TE, t)[id] += Row<T>(dw_TK, t)[k];
      }
    }
  });
}

absl::Status ReferenceDevice::NormalizeRows(In raw_TK, double eps, double scale, Out w_TK) {
  MOE_RETURN_IF_ERROR(CheckNormalizeRows(raw_TK, w_TK));
  return ForFloat(raw_TK.dtype(), [&](auto tag) {
    using T = decltype(tag);
    const int64_t K = raw_TK.dim(1);
    for (int64_t t = 0; t < raw_TK.dim(0); ++t) {
      const T* raw = Row<T>(raw_TK, t);
      T* w = Row<T>(w_TK, t);
      double sum = 0;
      for (int64_t k = 0; k < K; ++k) sum += raw[k];
      for (int64_t k = 0; k < K; ++k) w[k] = static_cast<T>(sum == 0 ? 0 : raw[k] / (sum + eps) * scale);
    }
  });
}

// With n = sum + eps: w_k = scale raw_k / n, so draw_k = scale (dw_k - sum_j dw_j raw_j / n) / n.
absl::Status ReferenceDevice::NormalizeRowsBackward(In raw_TK, double eps, double scale, In dw_TK, Out draw_TK) {
  MOE_RETURN_IF_ERROR(CheckNormalizeRowsBackward(raw_TK, dw_TK, draw_TK));
  return ForFloat(raw_TK.dtype(), [&](auto tag) {
    using T = decltype(tag);
    const int64_t K = raw_TK.dim(1);
    for (int64_t t = 0; t < raw_TK.dim(0); ++t) {
      const T *raw = Row<T>(raw_TK, t), *dw = Row<T>(dw_TK, t);
      T* draw = Row<T>(draw_TK, t);
      double sum = 0, dot = 0;
      for (int64_t k = 0; k < K; ++k) {
        sum += raw[k];
        dot += static_cast<double>(dw[k]) * raw[k];
      }
      const double n = sum + eps;
      for (int64_t k = 0; k < K; ++k) draw[k] = static_cast<T>(sum == 0 ? 0 : scale * (dw[k] - dot / n) / n);
    }
  });
}

absl::Status ReferenceDevice::AddRow(In c_E, double alpha, Out y_TE) {
  MOE_RETURN_IF_ERROR(CheckAddRow(c_E, y_TE));
  return ForFloat(y_TE.dtype(), [&](auto tag) {
    using T = decltype(tag);
    for (int64_t t = 0; t < y_TE.dim(0); ++t) {
      T* y = Row<T>(y_TE, t);
      for (int64_t e = 0; e < y_TE.dim(1); ++e) y[e] = static_cast<T>(y[e] + alpha * c_E.as<T>()[e]);
    }
  });
}

absl::Status ReferenceDevice::AddScaledRows(In s_T, In x_TE, double alpha, Out y_TE) {
  MOE_RETURN_IF_ERROR(CheckAddScaledRows(s_T, x_TE, y_TE));
  return ForFloat(y_TE.dtype(), [&](auto tag) {
    using T = decltype(tag);
    for (int64_t t = 0; t < y_TE.dim(0); ++t) {
      const T* x = Row<T>(x_TE, t);
      T* y = Row<T>(y_TE, t);
      const double factor = alpha * s_T.as<T>()[t];
      for (int64_t e = 0; e < y_TE.dim(1); ++e) y[e] = static_cast<T>(y[e] + factor * x[e]);
    }
  });
}

absl::Status ReferenceDevice::MaskRows(In valid_T, Out y_TE) {
  MOE_RETURN_IF_ERROR(CheckMaskRows(valid_T, y_TE));
  return ForFloat(y_TE.dtype(), [&](auto tag) {
    using T = decltype(tag);
    for (int64_t t = 0; t < y_TE.dim(0); ++t)
      if (valid_T.as<uint8_t>()[t] == 0) std::fill_n(Row<T>(y_TE, t), y_TE.dim(1), T(0));
  });
}

}  // namespace moe
