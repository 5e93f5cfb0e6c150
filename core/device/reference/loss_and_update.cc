// Cross-entropy and the optimizers' updates.
#include <algorithm>
#include <cmath>

#include "core/device/reference/dispatch.h"
#include "core/device/reference/reference_device.h"

namespace moe {

absl::Status ReferenceDevice::CrossEntropy(Out logits, In labels, Out nll, bool write_grad, double scale) {
  MOE_RETURN_IF_ERROR(CheckTensor("cross_entropy", "logits", logits, nll.dtype(), {-1, -1}));
  MOE_RETURN_IF_ERROR(CheckTensor("cross_entropy", "labels", labels, DType::kI32, {logits.dim(0)}));
  MOE_RETURN_IF_ERROR(CheckTensor("cross_entropy", "nll", nll, logits.dtype(), {logits.dim(0)}));
  const int64_t V = logits.dim(1);
  MOE_DISPATCH(logits.dtype(), T, for (int64_t t = 0; t < logits.dim(0); ++t) {
    const int32_t label = labels.as<int32_t>()[t];
    if (label >= V) return InvalidArgument("cross_entropy: label ", label, " at ", t, " is outside [0, ", V, ")");
    T* a = Row<T>(logits, t);
    if (label < 0) {
      nll.as<T>()[t] = T{0};
      if (write_grad) std::fill_n(a, V, T{0});
      continue;
    }
    const double largest = static_cast<double>(*std::max_element(a, a + V));
    double sum = 0;
    for (int64_t v = 0; v < V; ++v) sum += std::exp(static_cast<double>(a[v]) - largest);
    nll.as<T>()[t] = static_cast<T>(largest + std::log(sum) - static_cast<double>(a[label]));
    if (!write_grad) continue;
    for (int64_t v = 0; v < V; ++v) a[v] = static_cast<T>(scale * (std::exp(static_cast<double>(a[v]) - largest) / sum - (v == label ? 1 : 0)));
  });
  return absl::OkStatus();
}

absl::Status ReferenceDevice::AdamW(const AdamWStep& s, In g, Out p, Out m, Out v) {
  for (const TensorView& x : {g, p, m, v}) MOE_RETURN_IF_ERROR(CheckFlat("adamw", "g, p, m or v", x, p.dtype(), p.size()));
  const double c1 = 1 - std::pow(s.beta1, static_cast<double>(s.step)), c2 = 1 - std::pow(s.beta2, static_cast<double>(s.step));
  MOE_DISPATCH(p.dtype(), T, for (int64_t i = 0; i < p.size(); ++i) {
    const double d = s.grad_scale * static_cast<double>(g.as<T>()[i]);
    const double mi = s.beta1 * static_cast<double>(m.as<T>()[i]) + (1 - s.beta1) * d;
    const double vi = s.beta2 * static_cast<double>(v.as<T>()[i]) + (1 - s.beta2) * d * d;
    m.as<T>()[i] = static_cast<T>(mi);
    v.as<T>()[i] = static_cast<T>(vi);
    const double old = static_cast<double>(p.as<T>()[i]);
    p.as<T>()[i] = static_cast<T>(old - s.lr * (mi / c1 / (std::sqrt(vi / c2) + s.eps) + s.weight_decay * old));
  });
  return absl::OkStatus();
}

absl::Status ReferenceDevice::Sgd(double lr, double momentum, double decay, double scale, In g, Out p, Out mom) {
  for (const TensorView& x : {g, p}) MOE_RETURN_IF_ERROR(CheckFlat("sgd", "g or p", x, p.dtype(), p.size()));
  if (mom.defined()) MOE_RETURN_IF_ERROR(CheckFlat("sgd", "mom", mom, p.dtype(), p.size()));
  MOE_DISPATCH(p.dtype(), T, for (int64_t i = 0; i < p.size(); ++i) {
    double d = scale * static_cast<double>(g.as<T>()[i]);
    if (mom.defined()) {
      d += momentum * static_cast<double>(mom.as<T>()[i]);
      mom.as<T>()[i] = static_cast<T>(d);
    }
    const double old = static_cast<double>(p.as<T>()[i]);
    p.as<T>()[i] = static_cast<T>(old - lr * (d + decay * old));
  });
  return absl::OkStatus();
}

}  // namespace moe
