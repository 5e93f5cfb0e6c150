// AdamW (arXiv 1711.05101, with the bias correction of arXiv 1412.6980) and SGD with momentum, on flat buffers.
#include <cmath>

#include "core/device/reference/dispatch.h"
#include "core/device/reference/reference_device.h"

namespace moe {

absl::Status ReferenceDevice::AdamW(const AdamWStep& s, In g, Out p, Out m, Out v) {
  MOE_RETURN_IF_ERROR(CheckAdamW(s, g, p, m, v));
  return ForFloat(g.dtype(), [&](auto tag) {
    using T = decltype(tag);
    const double correct1 = 1 - std::pow(s.beta1, static_cast<double>(s.step)), correct2 = 1 - std::pow(s.beta2, static_cast<double>(s.step));
    for (int64_t i = 0; i < g.size(); ++i) {
      const double grad = s.grad_scale * g.as<T>()[i];
      const double m1 = s.beta1 * m.as<T>()[i] + (1 - s.beta1) * grad;
      const double v1 = s.beta2 * v.as<T>()[i] + (1 - s.beta2) * grad * grad;
      const double p0 = p.as<T>()[i];
      m.as<T>()[i] = static_cast<T>(m1);
      v.as<T>()[i] = static_cast<T>(v1);
      p.as<T>()[i] = static_cast<T>(p0 - s.lr * (m1 / correct1 / (std::sqrt(v1 / correct2) + s.eps) + s.weight_decay * p0));
    }
  });
}

absl::Status ReferenceDevice::Sgd(double lr, double momentum, double weight_decay, double grad_scale, In g, Out p, Out mom) {
  MOE_RETURN_IF_ERROR(CheckSgd(g, p, mom));
  return ForFloat(g.dtype(), [&](auto tag) {
    using T = decltype(tag);
    for (int64_t i = 0; i < g.size(); ++i) {
      double step = grad_scale * g.as<T>()[i];
      if (mom.defined()) {
        step += momentum * mom.as<T>()[i];
        mom.as<T>()[i] = static_cast<T>(step);
      }
      const double p0 = p.as<T>()[i];
      p.as<T>()[i] = static_cast<T>(p0 - lr * (step + weight_decay * p0));
    }
  });
}

}  // namespace moe
