#include <cmath>

#include "core/device/check.h"
#include "core/device/cpu/cpu_device.h"
#include "core/device/cpu/pieces.h"

namespace moe {

absl::Status CpuDevice::AdamW(const AdamWStep& s, In g, Out p, Out m, Out v) {
  if (g.dtype() != DType::kF32) return ReferenceDevice::AdamW(s, g, p, m, v);
  MOE_RETURN_IF_ERROR(CheckAdamW(s, g, p, m, v));
  const double correct1 = 1 - std::pow(s.beta1, static_cast<double>(s.step)), correct2 = 1 - std::pow(s.beta2, static_cast<double>(s.step));
  AdamWFactors f;
  f.grad_scale = static_cast<float>(s.grad_scale);
  f.beta1 = static_cast<float>(s.beta1);
  f.one_minus_beta1 = static_cast<float>(1 - s.beta1);
  f.beta2 = static_cast<float>(s.beta2);
  f.one_minus_beta2 = static_cast<float>(1 - s.beta2);
  f.step = static_cast<float>(s.lr / correct1);
  f.inverse_root = static_cast<float>(1 / std::sqrt(correct2));
  f.eps = static_cast<float>(s.eps);
  f.decay = static_cast<float>(s.lr * s.weight_decay);
  ForPieces(&pool_, Pieces(1, g.size()), [&](int64_t, int64_t i, int64_t n) {
    kernels_.update.adamw(f, g.as<float>() + i, p.as<float>() + i, m.as<float>() + i, v.as<float>() + i, n);
  });
  return absl::OkStatus();
}

absl::Status CpuDevice::Sgd(double lr, double momentum, double weight_decay, double grad_scale, In g, Out p, Out mom) {
  if (g.dtype() != DType::kF32) return ReferenceDevice::Sgd(lr, momentum, weight_decay, grad_scale, g, p, mom);
  MOE_RETURN_IF_ERROR(CheckSgd(g, p, mom));
  ForPieces(&pool_, Pieces(1, g.size()), [&](int64_t, int64_t i, int64_t n) {
    kernels_.update.sgd(static_cast<float>(lr), static_cast<float>(momentum), static_cast<float>(weight_decay), static_cast<float>(grad_scale),
                        g.as<float>() + i, p.as<float>() + i, mom.defined() ? mom.as<float>() + i : nullptr, n);
  });
  return absl::OkStatus();
}

}  // namespace moe
