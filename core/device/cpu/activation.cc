#include <algorithm>

#include "core/device/check.h"
#include "core/device/cpu/cpu_device.h"
#include "core/device/rows.h"

namespace moe {
namespace {

// About 20 microseconds of work.
constexpr int64_t kElementsOfTask = 16384;

// Calls body(row, first column, columns) over all elements of an [R, F] operand in pieces of about kElementsOfTask.
template <typename Body>
void ForPieces(ThreadPool* pool, int64_t R, int64_t F, Body&& body) {
  if (R == 0 || F == 0) return;
  const int64_t columns = std::min(F, kElementsOfTask), blocks = (F + columns - 1) / columns;
  const int64_t rows = std::max<int64_t>(1, kElementsOfTask / F);
  pool->ParallelFor((R + rows - 1) / rows * blocks, [&](int64_t task) {
    const int64_t r0 = task / blocks * rows, f = task % blocks * columns;
    for (int64_t r = r0; r < std::min(R, r0 + rows); ++r) body(r, f, std::min(columns, F - f));
  });
}

}  // namespace

absl::Status CpuDevice::ActivationForward(Activation kind, In h_RH, Out a_RF) {
  if (h_RH.dtype() != DType::kF32) return ReferenceDevice::ActivationForward(kind, h_RH, a_RF);
  MOE_RETURN_IF_ERROR(CheckActivationForward(kind, h_RH, a_RF));
  const ActivationKernels& k = kernels_.activation;
  const int64_t F = a_RF.dim(1);
  ForPieces(&pool_, a_RF.dim(0), F, [&](int64_t r, int64_t f, int64_t n) {
    const float* h = Row<float>(h_RH, r) + f;
    float* a = Row<float>(a_RF, r) + f;
    switch (kind) {
      case Activation::kSwiGlu: return k.swiglu(h, h + F, a, n);
      case Activation::kGelu: return k.gelu(h, a, n);
      case Activation::kGeluTanh: return k.gelu_tanh(h, a, n);
      case Activation::kRelu: return k.relu(h, a, n);
    }
  });
  return absl::OkStatus();
}

absl::Status CpuDevice::ActivationBackward(Activation kind, In h_RH, In da_RF, Out dh_RH) {
  if (h_RH.dtype() != DType::kF32) return ReferenceDevice::ActivationBackward(kind, h_RH, da_RF, dh_RH);
  MOE_RETURN_IF_ERROR(CheckActivationBackward(kind, h_RH, da_RF, dh_RH));
  const ActivationKernels& k = kernels_.activation;
  const int64_t F = da_RF.dim(1);
  ForPieces(&pool_, da_RF.dim(0), F, [&](int64_t r, int64_t f, int64_t n) {
    const float* h = Row<float>(h_RH, r) + f;
    const float* da = Row<float>(da_RF, r) + f;
    float* dh = Row<float>(dh_RH, r) + f;
    switch (kind) {
      case Activation::kSwiGlu: return k.swiglu_grad(h, h + F, da, dh, dh + F, n);
      case Activation::kGelu: return k.gelu_grad(h, da, dh, n);
      case Activation::kGeluTanh: return k.gelu_tanh_grad(h, da, dh, n);
      case Activation::kRelu: return k.relu_grad(h, da, dh, n);
    }
  });
  return absl::OkStatus();
}

}  // namespace moe
