// y = x * rstd * w, rstd = 1 / sqrt(mean(x^2) + eps) (arXiv 1910.07467).
//   dx_i = rstd * (w_i dy_i - x_i * rstd^2 * mean_j(dy_j w_j x_j)),   dw_i = sum_t dy_ti x_ti rstd_t
#include <cmath>
#include <vector>

#include "core/device/reference/dispatch.h"
#include "core/device/reference/reference_device.h"

namespace moe {

absl::Status ReferenceDevice::RmsNormForward(In x_TD, In w_D, double eps, Out y_TD, Out rstd_T) {
  MOE_RETURN_IF_ERROR(CheckRmsNormForward(x_TD, w_D, y_TD, rstd_T));
  return ForFloat(x_TD.dtype(), [&](auto tag) {
    using T = decltype(tag);
    const int64_t D = x_TD.dim(1);
    const T* w = w_D.as<T>();
    for (int64_t t = 0; t < x_TD.dim(0); ++t) {
      const T* x = Row<T>(x_TD, t);
      T* y = Row<T>(y_TD, t);
      double sum = 0;
      for (int64_t i = 0; i < D; ++i) sum += static_cast<double>(x[i]) * x[i];
      const double rstd = 1 / std::sqrt(sum / static_cast<double>(D) + eps);
      for (int64_t i = 0; i < D; ++i) y[i] = static_cast<T>(x[i] * rstd * w[i]);
      rstd_T.as<T>()[t] = static_cast<T>(rstd);
    }
  });
}

absl::Status ReferenceDevice::RmsNormBackward(In x_TD, In w_D, In rstd_T, In dy_TD, Out dx_TD, bool accumulate_dx, Out dw_D) {
  MOE_RETURN_IF_ERROR(CheckRmsNormBackward(x_TD, w_D, rstd_T, dy_TD, dx_TD, dw_D));
  return ForFloat(x_TD.dtype(), [&](auto tag) {
    using T = decltype(tag);
    const int64_t D = x_TD.dim(1);
    const T* w = w_D.as<T>();
    std::vector<double> dw(D);
    for (int64_t t = 0; t < x_TD.dim(0); ++t) {
      const T *x = Row<T>(x_TD, t), *dy = Row<T>(dy_TD, t);
      T* dx = Row<T>(dx_TD, t);
      const double rstd = rstd_T.as<T>()[t];
      double dot = 0;
      for (int64_t i = 0; i < D; ++i) dot += static_cast<double>(dy[i]) * w[i] * x[i];
      const double mean = dot / static_cast<double>(D) * rstd * rstd;
      for (int64_t i = 0; i < D; ++i) {
        dw[i] += dy[i] * (x[i] * rstd);
        const double d = rstd * (static_cast<double>(w[i]) * dy[i] - x[i] * mean);
        dx[i] = static_cast<T>(accumulate_dx ? dx[i] + d : d);
      }
    }
    for (int64_t i = 0; i < D; ++i) dw_D.as<T>()[i] = static_cast<T>(dw_D.as<T>()[i] + dw[i]);
  });
}

}  // namespace moe
