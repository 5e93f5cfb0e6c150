// Sums to the host and over rows, in float64; the largest element.
#include <cmath>
#include <vector>

#include "core/device/reference/dispatch.h"
#include "core/device/reference/reference_device.h"

namespace moe {

absl::StatusOr<double> ReferenceDevice::Sum(In x) {
  MOE_RETURN_IF_ERROR(CheckReduce("Sum", x));
  double sum = 0;
  MOE_RETURN_IF_ERROR(ForFloat(x.dtype(), [&](auto tag) {
    using T = decltype(tag);
    for (int64_t r = 0; r < NumRows(x); ++r)
      for (int64_t i = 0; i < RowLength(x); ++i) sum += Row<T>(x, r)[i];
  }));
  return sum;
}

absl::StatusOr<double> ReferenceDevice::SumSquares(In x) {
  MOE_RETURN_IF_ERROR(CheckReduce("SumSquares", x));
  double sum = 0;
  MOE_RETURN_IF_ERROR(ForFloat(x.dtype(), [&](auto tag) {
    using T = decltype(tag);
    for (int64_t r = 0; r < NumRows(x); ++r) {
      const T* in = Row<T>(x, r);
      for (int64_t i = 0; i < RowLength(x); ++i) sum += static_cast<double>(in[i]) * in[i];
    }
  }));
  return sum;
}

absl::StatusOr<double> ReferenceDevice::MaxAbs(In x) {
  MOE_RETURN_IF_ERROR(CheckReduce("MaxAbs", x));
  double most = 0;
  MOE_RETURN_IF_ERROR(ForFloat(x.dtype(), [&](auto tag) {
    using T = decltype(tag);
    for (int64_t r = 0; r < NumRows(x); ++r) {
      const T* in = Row<T>(x, r);
      for (int64_t i = 0; i < RowLength(x); ++i) {
        const double a = std::abs(static_cast<double>(in[i]));
        if (std::isnan(a) || a > most) most = std::isnan(most) ? most : a;
      }
    }
  }));
  return most;
}

absl::Status ReferenceDevice::ColumnSum(In x_TE, Out sum_E, bool accumulate) {
  MOE_RETURN_IF_ERROR(CheckColumnSum(x_TE, sum_E));
  return ForFloat(x_TE.dtype(), [&](auto tag) {
    using T = decltype(tag);
    const int64_t E = x_TE.dim(1);
    std::vector<double> sum(E);
    for (int64_t t = 0; t < x_TE.dim(0); ++t)
      for (int64_t e = 0; e < E; ++e) sum[e] += Row<T>(x_TE, t)[e];
    T* out = sum_E.as<T>();
    for (int64_t e = 0; e < E; ++e) out[e] = static_cast<T>(accumulate ? out[e] + sum[e] : sum[e]);
  });
}

}  // namespace moe
