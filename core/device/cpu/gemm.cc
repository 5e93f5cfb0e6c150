#include "core/device/check.h"
#include "core/device/cpu/cpu_device.h"

namespace moe {

absl::Status CpuDevice::Gemm(bool trans_a, bool trans_b, double alpha, In a, In b, double beta, Out c) {
  if (c.dtype() != DType::kF32) return ReferenceDevice::Gemm(trans_a, trans_b, alpha, a, b, beta, c);
  MOE_RETURN_IF_ERROR(CheckGemm(trans_a, trans_b, a, b, c));
  MatMul p;
  p.trans_a = trans_a, p.trans_b = trans_b;
  p.m = c.dim(0), p.n = c.dim(1), p.k = a.dim(trans_a ? 0 : 1);
  p.alpha = static_cast<float>(alpha), p.beta = static_cast<float>(beta);
  p.a = a.as<float>(), p.lda = a.stride(0);
  p.b = b.as<float>(), p.ldb = b.stride(0);
  p.c = c.as<float>(), p.ldc = c.stride(0);
  matmul_.Clear();
  matmul_.Add(p);
  matmul_.Run();
  return absl::OkStatus();
}

}  // namespace moe
