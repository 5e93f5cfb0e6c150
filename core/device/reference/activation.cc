// Activations of experts: SwiGLU (arXiv 2002.05202), GELU exact and by tanh (arXiv 1606.08415), ReLU.
#include <cmath>

#include "core/device/reference/dispatch.h"
#include "core/device/reference/reference_device.h"

namespace moe {
namespace {

constexpr double kInvSqrt2 = 0.70710678118654752440;
constexpr double kInvSqrt2Pi = 0.39894228040143267794;
constexpr double kSqrt2OverPi = 0.79788456080286535588;
constexpr double kCubic = 0.044715;

double Sigmoid(double x) { return x >= 0 ? 1 / (1 + std::exp(-x)) : std::exp(x) / (1 + std::exp(x)); }

double Activate(Activation kind, double x) {
  switch (kind) {
    case Activation::kGelu: return 0.5 * x * std::erfc(-x * kInvSqrt2);
    case Activation::kGeluTanh: return 0.5 * x * (1 + std::tanh(kSqrt2OverPi * (x + kCubic * x * x * x)));
    case Activation::kRelu: return x < 0 ? 0 : x;   // NaN stays NaN
    case Activation::kSwiGlu: break;
  }
  return 0;
}

double Derivative(Activation kind, double x) {
  switch (kind) {
    case Activation::kGelu: return 0.5 * std::erfc(-x * kInvSqrt2) + x * kInvSqrt2Pi * std::exp(-0.5 * x * x);
    case Activation::kGeluTanh: {
      const double t = std::tanh(kSqrt2OverPi * (x + kCubic * x * x * x));
      return 0.5 * (1 + t) + 0.5 * x * (1 - t * t) * kSqrt2OverPi * (1 + 3 * kCubic * x * x);
    }
    case Activation::kRelu: return x > 0 ? 1 : 0;
    case Activation::kSwiGlu: break;
  }
  return 0;
}

}  // namespace

absl::Status ReferenceDevice::ActivationForward(Activation kind, In h_RH, Out a_RF) {
  MOE_RETURN_IF_ERROR(CheckActivationForward(kind, h_RH, a_RF));
  return ForFloat(h_RH.dtype(), [&](auto tag) {
    using T = decltype(tag);
    const int64_t F = a_RF.dim(1);
    for (int64_t r = 0; r < h_RH.dim(0); ++r) {
      const T* h = Row<T>(h_RH, r);
      T* a = Row<T>(a_RF, r);
      for (int64_t f = 0; f < F; ++f) {
        const double x = h[f];
        a[f] = static_cast<T>(kind == Activation::kSwiGlu ? x * Sigmoid(x) * h[F + f] : Activate(kind, x));
      }
    }
  });
}

absl::Status ReferenceDevice::ActivationBackward(Activation kind, In h_RH, In da_RF, Out dh_RH) {
  MOE_RETURN_IF_ERROR(CheckActivationBackward(kind, h_RH, da_RF, dh_RH));
  return ForFloat(h_RH.dtype(), [&](auto tag) {
    using T = decltype(tag);
    const int64_t F = da_RF.dim(1);
    for (int64_t r = 0; r < h_RH.dim(0); ++r) {
      const T* h = Row<T>(h_RH, r);
      const T* da = Row<T>(da_RF, r);
      T* dh = Row<T>(dh_RH, r);
      for (int64_t f = 0; f < F; ++f) {
        const double x = h[f], d = da[f];
        if (kind != Activation::kSwiGlu) {
          dh[f] = static_cast<T>(d * Derivative(kind, x));
          continue;
        }
        const double up = h[F + f], s = Sigmoid(x);   // read before dh, which may be the same memory
        dh[f] = static_cast<T>(d * up * s * (1 + x * (1 - s)));
        dh[F + f] = static_cast<T>(d * x * s);
      }
    }
  });
}

}  // namespace moe
