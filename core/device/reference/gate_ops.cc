// Operations of routing: softmax, top-k, columns by id, renormalisation.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/device/reference/dispatch.h"
#include "core/device/reference/reference_device.h"

namespace moe {

absl::Status ReferenceDevice::Softmax(In l, Out p, Out lse) {
  MOE_RETURN_IF_ERROR(CheckTensor("softmax", "l", l, p.dtype(), {-1, -1}));
  MOE_RETURN_IF_ERROR(CheckTensor("softmax", "p", p, l.dtype(), {l.dim(0), l.dim(1)}));
  if (lse.defined()) MOE_RETURN_IF_ERROR(CheckTensor("softmax", "lse", lse, l.dtype(), {l.dim(0)}));
  MOE_DISPATCH(l.dtype(), T, for (int64_t t = 0; t < l.dim(0); ++t) {
    const T* a = Row<T>(l, t);
    T* b = Row<T>(p, t);
    const double largest = static_cast<double>(*std::max_element(a, a + l.dim(1)));
    double sum = 0;
    for (int64_t e = 0; e < l.dim(1); ++e) sum += std::exp(static_cast<double>(a[e]) - largest);
    for (int64_t e = 0; e < l.dim(1); ++e) b[e] = static_cast<T>(std::exp(static_cast<double>(a[e]) - largest) / sum);
    if (lse.defined()) lse.as<T>()[t] = static_cast<T>(largest + std::log(sum));
  });
  return absl::OkStatus();
}

absl::Status ReferenceDevice::SoftmaxBackward(In p, In dp, Out dl) {
  MOE_RETURN_IF_ERROR(CheckTensor("softmax backward", "p", p, dp.dtype(), {-1, -1}));
  MOE_RETURN_IF_ERROR(CheckTensor("softmax backward", "dp", dp, p.dtype(), {p.dim(0), p.dim(1)}));
  MOE_RETURN_IF_ERROR(CheckTensor("softmax backward", "dl", dl, p.dtype(), {p.dim(0), p.dim(1)}));
  MOE_DISPATCH(p.dtype(), T, for (int64_t t = 0; t < p.dim(0); ++t) {
    double s = 0;
    for (int64_t e = 0; e < p.dim(1); ++e) s += static_cast<double>(Row<T>(p, t)[e]) * static_cast<double>(Row<T>(dp, t)[e]);
    for (int64_t e = 0; e < p.dim(1); ++e) Row<T>(dl, t)[e] = static_cast<T>(static_cast<double>(Row<T>(p, t)[e]) * (static_cast<double>(Row<T>(dp, t)[e]) - s));
  });
  return absl::OkStatus();
}

absl::Status ReferenceDevice::TopK(In s, Out ids) {
  MOE_RETURN_IF_ERROR(CheckTensor("top_k", "s", s, s.dtype(), {-1, -1}));
  MOE_RETURN_IF_ERROR(CheckTensor("top_k", "ids", ids, DType::kI32, {s.dim(0), -1}));
  const int64_t E = s.dim(1), K = ids.dim(1);
  if (K > E) return InvalidArgument("top_k: ", K, " of ", E, " columns");
  std::vector<int32_t> order(E);
  MOE_DISPATCH(s.dtype(), T, for (int64_t t = 0; t < s.dim(0); ++t) {
    const T* a = Row<T>(s, t);
    for (int64_t e = 0; e < E; ++e)
      if (!std::isfinite(a[e])) return InvalidArgument("top_k: score [", t, ",", e, "] is ", static_cast<double>(a[e]), "; routing needs finite scores (diverged weights or bad input?)");
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t i, int32_t j) { return a[i] > a[j]; });
    std::copy(order.begin(), order.begin() + K, Row<int32_t>(ids, t));
  });
  return absl::OkStatus();
}

absl::Status ReferenceDevice::GatherColumns(In p, In ids, Out w) {
  MOE_RETURN_IF_ERROR(CheckTensor("gather_columns", "p", p, w.dtype(), {-1, -1}));
  MOE_RETURN_IF_ERROR(CheckTensor("gather_columns", "ids", ids, DType::kI32, {p.dim(0), -1}));
  MOE_RETURN_IF_ERROR(CheckTensor("gather_columns", "w", w, p.dtype(), {p.dim(0), ids.dim(1)}));
  MOE_DISPATCH(p.dtype(), T, for (int64_t t = 0; t < p.dim(0); ++t) for (int64_t k = 0; k < ids.dim(1); ++k) {
    const int32_t id = Row<int32_t>(ids, t)[k];
    Row<T>(w, t)[k] = id < 0 ? T{0} : Row<T>(p, t)[id];
  });
  return absl::OkStatus();
}

absl::Status ReferenceDevice::ScatterColumns(In dw, In ids, Out dp) {
  MOE_RETURN_IF_ERROR(CheckTensor("scatter_columns", "dp", dp, dw.dtype(), {-1, -1}));
  MOE_RETURN_IF_ERROR(CheckTensor("scatter_columns", "ids", ids, DType::kI32, {dp.dim(0), -1}));
  MOE_RETURN_IF_ERROR(CheckTensor("scatter_columns", "dw", dw, dp.dtype(), {dp.dim(0), ids.dim(1)}));
  MOE_DISPATCH(dp.dtype(), T, for (int64_t t = 0; t < dp.dim(0); ++t) for (int64_t k = 0; k < ids.dim(1); ++k) {
    const int32_t id = Row<int32_t>(ids, t)[k];
    if (id >= 0) Row<T>(dp, t)[id] += Row<T>(dw, t)[k];
  });
  return absl::OkStatus();
}

absl::Status ReferenceDevice::NormalizeRows(In raw, double eps, double scale, Out w) {
  MOE_RETURN_IF_ERROR(CheckTensor("normalize_rows", "raw", raw, w.dtype(), {-1, -1}));
  MOE_RETURN_IF_ERROR(CheckTensor("normalize_rows", "w", w, raw.dtype(), {raw.dim(0), raw.dim(1)}));
  MOE_DISPATCH(raw.dtype(), T, for (int64_t t = 0; t < raw.dim(0); ++t) {
    double s = 0;
    for (int64_t k = 0; k < raw.dim(1); ++k) s += static_cast<double>(Row<T>(raw, t)[k]);
    const double f = s == 0 ? 0.0 : scale / (s + eps);
    for (int64_t k = 0; k < raw.dim(1); ++k) Row<T>(w, t)[k] = static_cast<T>(static_cast<double>(Row<T>(raw, t)[k]) * f);
  });
  return absl::OkStatus();
}

// w_k = c r_k / (S + eps): dr_k = c / (S + eps) (dw_k - sum_j dw_j r_j / (S + eps)).
absl::Status ReferenceDevice::NormalizeRowsBackward(In raw, double eps, double scale, In dw, Out draw) {
  MOE_RETURN_IF_ERROR(CheckTensor("normalize_rows backward", "raw", raw, dw.dtype(), {-1, -1}));
  MOE_RETURN_IF_ERROR(CheckTensor("normalize_rows backward", "dw", dw, raw.dtype(), {raw.dim(0), raw.dim(1)}));
  MOE_RETURN_IF_ERROR(CheckTensor("normalize_rows backward", "draw", draw, raw.dtype(), {raw.dim(0), raw.dim(1)}));
  MOE_DISPATCH(raw.dtype(), T, for (int64_t t = 0; t < raw.dim(0); ++t) {
    double s = 0, dot = 0;
    for (int64_t k = 0; k < raw.dim(1); ++k) {
      s += static_cast<double>(Row<T>(raw, t)[k]);
      dot += static_cast<double>(Row<T>(raw, t)[k]) * static_cast<double>(Row<T>(dw, t)[k]);
    }
    for (int64_t k = 0; k < raw.dim(1); ++k)
      Row<T>(draw, t)[k] = s == 0 ? T{0} : static_cast<T>(scale / (s + eps) * (static_cast<double>(Row<T>(dw, t)[k]) - dot / (s + eps)));
  });
  return absl::OkStatus();
}

absl::Status ReferenceDevice::AddRow(In c, double alpha, Out y) {
  MOE_RETURN_IF_ERROR(CheckTensor("add_row", "y", y, c.dtype(), {-1, -1}));
  MOE_RETURN_IF_ERROR(CheckTensor("add_row", "c", c, y.dtype(), {y.dim(1)}));
  MOE_DISPATCH(y.dtype(), T, for (int64_t t = 0; t < y.dim(0); ++t) for (int64_t e = 0; e < y.dim(1); ++e) Row<T>(y, t)[e] += static_cast<T>(alpha) * c.as<T>()[e];);
  return absl::OkStatus();
}

absl::Status ReferenceDevice::AddScaledRows(In s, In x, double alpha, Out y) {
  MOE_RETURN_IF_ERROR(CheckTensor("add_scaled_rows", "y", y, x.dtype(), {-1, -1}));
  MOE_RETURN_IF_ERROR(CheckTensor("add_scaled_rows", "x", x, y.dtype(), {y.dim(0), y.dim(1)}));
  MOE_RETURN_IF_ERROR(CheckTensor("add_scaled_rows", "s", s, y.dtype(), {y.dim(0)}));
  MOE_DISPATCH(y.dtype(), T, for (int64_t t = 0; t < y.dim(0); ++t) for (int64_t e = 0; e < y.dim(1); ++e)
                                 Row<T>(y, t)[e] += static_cast<T>(alpha * static_cast<double>(s.as<T>()[t])) * Row<T>(x, t)[e];);
  return absl::OkStatus();
}

absl::Status ReferenceDevice::MaskRows(In valid, Out y) {
  MOE_RETURN_IF_ERROR(CheckTensor("mask_rows", "y", y, y.dtype(), {-1, -1}));
  MOE_RETURN_IF_ERROR(CheckTensor("mask_rows", "valid", valid, DType::kU8, {y.dim(0)}));
  const int64_t bytes = y.dim(1) * SizeOf(y.dtype());
  for (int64_t t = 0; t < y.dim(0); ++t)
    if (valid.as<uint8_t>()[t] == 0) std::fill_n(static_cast<char*>(y.data()) + t * y.stride(0) * SizeOf(y.dtype()), bytes, 0);
  return absl::OkStatus();
}

}  // namespace moe
