// Softmax and cross entropy, a row per kernel call. The logarithm of a row is taken in float64.
#include <cmath>
#include <cstring>

#include "core/device/check.h"
#include "core/device/cpu/cpu_device.h"
#include "core/device/cpu/pieces.h"

namespace moe {

absl::Status CpuDevice::Softmax(In l_TE, Out p_TE, Out lse_T) {
  if (l_TE.dtype() != DType::kF32) return ReferenceDevice::Softmax(l_TE, p_TE, lse_T);
  MOE_RETURN_IF_ERROR(CheckSoftmax(l_TE, p_TE, lse_T));
  ForRowBlocks(&pool_, l_TE.dim(0), l_TE.dim(1), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      float max, sum;
      kernels_.softmax.softmax(1, Row<float>(l_TE, t), Row<float>(p_TE, t), l_TE.dim(1), &max, &sum);
      if (lse_T.defined()) lse_T.as<float>()[t] = static_cast<float>(max + std::log(static_cast<double>(sum)));
    }
  });
  return absl::OkStatus();
}

absl::Status CpuDevice::SoftmaxBackward(In p_TE, In dp_TE, Out dl_TE) {
  if (p_TE.dtype() != DType::kF32) return ReferenceDevice::SoftmaxBackward(p_TE, dp_TE, dl_TE);
  MOE_RETURN_IF_ERROR(CheckSoftmaxBackward(p_TE, dp_TE, dl_TE));
  ForRowBlocks(&pool_, p_TE.dim(0), p_TE.dim(1), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) kernels_.softmax.softmax_grad(Row<float>(p_TE, t), Row<float>(dp_TE, t), Row<float>(dl_TE, t), p_TE.dim(1));
  });
  return absl::OkStatus();
}

absl::Status CpuDevice::CrossEntropy(Out logits_TV, In labels_T, Out nll_T, bool write_grad, double grad_scale) {
  if (logits_TV.dtype() != DType::kF32) return ReferenceDevice::CrossEntropy(logits_TV, labels_T, nll_T, write_grad, grad_scale);
  MOE_RETURN_IF_ERROR(CheckCrossEntropy(logits_TV, labels_T, nll_T));
  const int64_t V = logits_TV.dim(1);
  const int32_t* labels = labels_T.as<int32_t>();
  float* nll = nll_T.as<float>();
  const float scale = static_cast<float>(grad_scale);
  ForRowBlocks(&pool_, logits_TV.dim(0), V, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      float* l = Row<float>(logits_TV, t);
      if (labels[t] < 0) {
        nll[t] = 0;
        if (write_grad) std::memset(l, 0, V * sizeof(float));
        continue;
      }
      const double label = l[labels[t]];
      float max, sum;
      if (write_grad) kernels_.softmax.softmax(scale, l, l, V, &max, &sum);
      else kernels_.softmax.max_sum(l, V, &max, &sum);
      nll[t] = static_cast<float>(max - label + std::log(static_cast<double>(sum)));
      if (write_grad) l[labels[t]] -= scale;
    }
  });
  return absl::OkStatus();
}

}  // namespace moe
