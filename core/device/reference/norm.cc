#include <cmath>

#include "core/device/reference/dispatch.h"
#include "core/device/reference/reference_device.h"

namespace moe {

absl::Status ReferenceDevice::RmsNormForward(In x, In w, double eps, Out y, Out rstd) {
  MOE_RETURN_IF_ERROR(CheckTensor("rms_norm", "x", x, w.dtype(), {-1, -1}));
  MOE_RETURN_IF_ERROR(CheckTensor("rms_norm", "w", w, x.dtype(), {x.dim(1)}));
  MOE_RETURN_IF_ERROR(CheckTensor("rms_norm", "y", y, x.dtype(), {x.dim(0), x.dim(1)}));
  MOE_RETURN_IF_ERROR(CheckTensor("rms_norm", "rstd", rstd, x.dtype(), {x.dim(0)}));
  MOE_DISPATCH(x.dtype(), T, for (int64_t t = 0; t < x.dim(0); ++t) {
    const T* a = Row<T>(x, t);
    double s = 0;
    for (int64_t d = 0; d < x.dim(1); ++d) s += static_cast<double>(a[d]) * static_cast<double>(a[d]);
    const double r = 1.0 / std::sqrt(s / static_cast<double>(x.dim(1)) + eps);
    rstd.as<T>()[t] = static_cast<T>(r);
    for (int64_t d = 0; d < x.dim(1); ++d) Row<T>(y, t)[d] = static_cast<T>(static_cast<double>(a[d]) * r * static_cast<double>(w.as<T>()[d]));
  });
  return absl::OkStatus();
}

// With n = x r: dx = r (w dy - n mean(n w dy)), dw = sum_t n dy.
absl::Status ReferenceDevice::RmsNormBackward(In x, In w, In rstd, In dy, Out dx, bool accumulate, Out dw) {
  MOE_RETURN_IF_ERROR(CheckTensor("rms_norm backward", "x", x, w.dtype(), {-1, -1}));
  const int64_t D = x.dim(1);
  MOE_RETURN_IF_ERROR(CheckTensor("rms_norm backward", "w", w, x.dtype(), {D}));
  MOE_RETURN_IF_ERROR(CheckTensor("rms_norm backward", "rstd", rstd, x.dtype(), {x.dim(0)}));
  MOE_RETURN_IF_ERROR(CheckTensor("rms_norm backward", "dy", dy, x.dtype(), {x.dim(0), D}));
  MOE_RETURN_IF_ERROR(CheckTensor("rms_norm backward", "dx", dx, x.dtype(), {x.dim(0), D}));
  MOE_RETURN_IF_ERROR(CheckTensor("rms_norm backward", "dw", dw, x.dtype(), {D}));
  MOE_DISPATCH(x.dtype(), T, for (int64_t t = 0; t < x.dim(0); ++t) {
    const double r = static_cast<double>(rstd.as<T>()[t]);
    double mean = 0;
    for (int64_t d = 0; d < D; ++d) mean += static_cast<double>(Row<T>(x, t)[d]) * r * static_cast<double>(w.as<T>()[d]) * static_cast<double>(Row<T>(dy, t)[d]);
    mean /= static_cast<double>(D);
    for (int64_t d = 0; d < D; ++d) {
      const double n = static_cast<double>(Row<T>(x, t)[d]) * r, g = static_cast<double>(Row<T>(dy, t)[d]);
      const T v = static_cast<T>(r * (static_cast<double>(w.as<T>()[d]) * g - n * mean));
      T& out = Row<T>(dx, t)[d];
      out = accumulate ? out + v : v;
      dw.as<T>()[d] += static_cast<T>(n * g);
    }
  });
  return absl::OkStatus();
}

}  // namespace moe
