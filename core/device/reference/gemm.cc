#include "core/device/reference/dispatch.h"
#include "core/device/reference/matrix.h"
#include "core/device/reference/reference_device.h"

namespace moe {
namespace {

template <typename T>
Matrix<T> Operand(In v, bool transposed) {
  Matrix<T> m{static_cast<T*>(v.data()), v.stride(0), 1};
  if (transposed) std::swap(m.row_stride, m.column_stride);
  return m;
}

}  // namespace

absl::Status ReferenceDevice::Gemm(bool trans_a, bool trans_b, double alpha, In a, In b, double beta, Out c) {
  MOE_RETURN_IF_ERROR(CheckGemm(trans_a, trans_b, a, b, c));
  return ForFloat(c.dtype(), [&](auto tag) {
    using T = decltype(tag);
    MatrixProduct<T>(c.dim(0), c.dim(1), a.dim(trans_a ? 0 : 1), alpha, Operand<const T>(a, trans_a), Operand<const T>(b, trans_b), beta, Operand<T>(c, false));
  });
}

}  // namespace moe
