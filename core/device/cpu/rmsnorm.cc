#include "core/device/check.h"
#include "core/device/cpu/cpu_device.h"
#include "core/device/cpu/pieces.h"

namespace moe {

absl::Status CpuDevice::RmsNormForward(In x_TD, In w_D, double eps, Out y_TD, Out rstd_T) {
  if (x_TD.dtype() != DType::kF32) return ReferenceDevice::RmsNormForward(x_TD, w_D, eps, y_TD, rstd_T);
  MOE_RETURN_IF_ERROR(CheckRmsNormForward(x_TD, w_D, y_TD, rstd_T));
  const int64_t D = x_TD.dim(1);
  const float* w = w_D.as<float>();
  float* rstd = rstd_T.as<float>();
  ForRowBlocks(&pool_, x_TD.dim(0), D, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) rstd[t] = kernels_.rows.rms_norm(Row<float>(x_TD, t), w, eps, Row<float>(y_TD, t), D);
  });
  return absl::OkStatus();
}

// dw: rows are cut into blocks by shape, each block sums its rows in order, the blocks' sums are added in order.
absl::Status CpuDevice::RmsNormBackward(In x_TD, In w_D, In rstd_T, In dy_TD, Out dx_TD, bool accumulate_dx, Out dw_D) {
  if (x_TD.dtype() != DType::kF32) return ReferenceDevice::RmsNormBackward(x_TD, w_D, rstd_T, dy_TD, dx_TD, accumulate_dx, dw_D);
  MOE_RETURN_IF_ERROR(CheckRmsNormBackward(x_TD, w_D, rstd_T, dy_TD, dx_TD, dw_D));
  constexpr int64_t kRowsOfBlock = 64;
  const int64_t T = x_TD.dim(0), D = x_TD.dim(1), blocks = (T + kRowsOfBlock - 1) / kRowsOfBlock;
  const float *w = w_D.as<float>(), *rstd = rstd_T.as<float>();
  scratch_.resize(std::max<size_t>(scratch_.size(), blocks * D));
  pool_.ParallelFor(blocks, [&](int64_t b) {
    float* dw = scratch_.data() + b * D;
    std::fill_n(dw, D, 0.0f);
    for (int64_t t = b * kRowsOfBlock; t < std::min(T, (b + 1) * kRowsOfBlock); ++t)
      kernels_.rows.rms_norm_grad(Row<float>(x_TD, t), w, rstd[t], Row<float>(dy_TD, t), Row<float>(dx_TD, t), accumulate_dx, dw, D);
  });
  partial_.assign(D, 0.0);
  for (int64_t b = 0; b < blocks; ++b) kernels_.runs.add_wide(scratch_.data() + b * D, partial_.data(), D);
  float* dw = dw_D.as<float>();
  for (int64_t i = 0; i < D; ++i) dw[i] = static_cast<float>(dw[i] + partial_[i]);
  return absl::OkStatus();
}

}  // namespace moe
