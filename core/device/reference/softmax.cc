#include <algorithm>
#include <cmath>
#include <limits>

#include "core/device/reference/dispatch.h"
#include "core/device/reference/reference_device.h"

namespace moe {

absl::Status ReferenceDevice::Softmax(In l_TE, Out p_TE, Out lse_T) {
  MOE_RETURN_IF_ERROR(CheckSoftmax(l_TE, p_TE, lse_T));
  return ForFloat(l_TE.dtype(), [&](auto tag) {
    using T = decltype(tag);
    const int64_t E = l_TE.dim(1);
    for (int64_t t = 0; t < l_TE.dim(0); ++t) {
      const T* l = Row<T>(l_TE, t);
      T* p = Row<T>(p_TE, t);
      double largest = -std::numeric_limits<double>::infinity(), sum = 0;
      for (int64_t e = 0; e < E; ++e) largest = std::max<double>(largest, l[e]);
      for (int64_t e = 0; e < E; ++e) sum += std::exp(l[e] - largest);
      for (int64_t e = 0; e < E; ++e) p[e] = static_cast<T>(std::exp(l[e] - largest) / sum);   // p may be l: read before written
      if (lse_T.defined()) lse_T.as<T>()[t] = static_cast<T>(largest + std::log(sum));
    }
  });
}

absl::Status ReferenceDevice::SoftmaxBackward(In p_TE, In dp_TE, Out dl_TE) {
  MOE_RETURN_IF_ERROR(CheckSoftmaxBackward(p_TE, dp_TE, dl_TE));
  return ForFloat(p_TE.dtype(), [&](auto tag) {
    using T = decltype(tag);
    const int64_t E = p_TE.dim(1);
    for (int64_t t = 0; t < p_TE.dim(0); ++t) {
      const T *p = Row<T>(p_TE, t), *dp = Row<T>(dp_TE, t);
      T* dl = Row<T>(dl_TE, t);
      double dot = 0;
      for (int64_t e = 0; e < E; ++e) dot += static_cast<double>(p[e]) * dp[e];
      for (int64_t e = 0; e < E; ++e) dl[e] = static_cast<T>(p[e] * (dp[e] - dot));
    }
  });
}

}  // namespace moe
