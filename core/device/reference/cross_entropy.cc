// Loss of next-token prediction: nll = logsumexp(l) - l[label], d nll / d l = softmax(l) - onehot(label).
#include <algorithm>
#include <cmath>
#include <limits>

#include "core/device/reference/dispatch.h"
#include "core/device/reference/reference_device.h"

namespace moe {

absl::Status ReferenceDevice::CrossEntropy(Out logits_TV, In labels_T, Out nll_T, bool write_grad, double grad_scale) {
  MOE_RETURN_IF_ERROR(CheckCrossEntropy(logits_TV, labels_T, nll_T));
  return ForFloat(logits_TV.dtype(), [&](auto tag) {
    using T = decltype(tag);
    const int64_t V = logits_TV.dim(1);
    for (int64_t t = 0; t < logits_TV.dim(0); ++t) {
      T* l = Row<T>(logits_TV, t);
      const int32_t label = labels_T.as<int32_t>()[t];
      if (label < 0) {
        nll_T.as<T>()[t] = 0;
        if (write_grad) std::fill_n(l, V, T(0));
        continue;
      }
      double largest = -std::numeric_limits<double>::infinity(), sum = 0;
      for (int64_t v = 0; v < V; ++v) largest = std::max<double>(largest, l[v]);
      for (int64_t v = 0; v < V; ++v) sum += std::exp(l[v] - largest);
      nll_T.as<T>()[t] = static_cast<T>(largest - l[label] + std::log(sum));
      if (!write_grad) continue;
      for (int64_t v = 0; v < V; ++v) l[v] = static_cast<T>(grad_scale * (std::exp(l[v] - largest) / sum - (v == label ? 1 : 0)));
    }
  });
}

}  // namespace moe
