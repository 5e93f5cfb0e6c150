// Embedding and rotary position.
#include "core/device/reference/dispatch.h"
#include "core/device/reference/reference_device.h"

namespace moe {
namespace {

absl::Status CheckIds(const char* op, In ids, int64_t limit) {
  for (int64_t t = 0; t < ids.size(); ++t)
    if (ids.as<int32_t>()[t] < 0 || ids.as<int32_t>()[t] >= limit) return InvalidArgument(op, ": id ", ids.as<int32_t>()[t], " at position ", t, " is outside [0, ", limit, ")");
  return absl::OkStatus();
}

}  // namespace

absl::Status ReferenceDevice::EmbeddingForward(In ids, In w, Out y) {
  MOE_RETURN_IF_ERROR(CheckTensor("embedding", "w", w, y.dtype(), {-1, -1}));
  MOE_RETURN_IF_ERROR(CheckTensor("embedding", "ids", ids, DType::kI32, {-1}));
  MOE_RETURN_IF_ERROR(CheckTensor("embedding", "y", y, w.dtype(), {ids.dim(0), w.dim(1)}));
  MOE_RETURN_IF_ERROR(CheckIds("embedding", ids, w.dim(0)));
  MOE_DISPATCH(w.dtype(), T, for (int64_t t = 0; t < ids.dim(0); ++t) for (int64_t d = 0; d < w.dim(1); ++d) Row<T>(y, t)[d] = Row<T>(w, ids.as<int32_t>()[t])[d];);
  return absl::OkStatus();
}

absl::Status ReferenceDevice::EmbeddingBackward(In ids, In dy, Out dw) {
  MOE_RETURN_IF_ERROR(CheckTensor("embedding backward", "dw", dw, dy.dtype(), {-1, -1}));
  MOE_RETURN_IF_ERROR(CheckTensor("embedding backward", "ids", ids, DType::kI32, {-1}));
  MOE_RETURN_IF_ERROR(CheckTensor("embedding backward", "dy", dy, dw.dtype(), {ids.dim(0), dw.dim(1)}));
  MOE_RETURN_IF_ERROR(CheckIds("embedding backward", ids, dw.dim(0)));
  MOE_DISPATCH(dw.dtype(), T, for (int64_t t = 0; t < ids.dim(0); ++t) for (int64_t d = 0; d < dw.dim(1); ++d) Row<T>(dw, ids.as<int32_t>()[t])[d] += Row<T>(dy, t)[d];);
  return absl::OkStatus();
}

absl::Status ReferenceDevice::Rotary(Out x, int64_t head_dim, In positions, In cosines, In sines, bool inverse) {
  const int64_t half = head_dim / 2;
  if (head_dim < 2 || head_dim % 2 != 0 || x.rank() != 2 || x.dim(1) % head_dim != 0)
    return InvalidArgument("rotary: head_dim ", head_dim, " must be even and divide the width of x, which is ", x.DebugString());
  MOE_RETURN_IF_ERROR(CheckTensor("rotary", "x", x, cosines.dtype(), {-1, -1}));
  MOE_RETURN_IF_ERROR(CheckTensor("rotary", "positions", positions, DType::kI32, {x.dim(0)}));
  MOE_RETURN_IF_ERROR(CheckTensor("rotary", "cos", cosines, x.dtype(), {-1, half}));
  MOE_RETURN_IF_ERROR(CheckTensor("rotary", "sin", sines, x.dtype(), {cosines.dim(0), half}));
  MOE_RETURN_IF_ERROR(CheckIds("rotary: position", positions, cosines.dim(0)));
  MOE_DISPATCH(x.dtype(), T, for (int64_t t = 0; t < x.dim(0); ++t) for (int64_t h = 0; h < x.dim(1); h += head_dim) for (int64_t i = 0; i < half; ++i) {
    const int32_t p = positions.as<int32_t>()[t];
    const double c = static_cast<double>(Row<T>(cosines, p)[i]), s = static_cast<double>(Row<T>(sines, p)[i]) * (inverse ? -1 : 1);
    T& u = Row<T>(x, t)[h + i];
    T& v = Row<T>(x, t)[h + i + half];
    const double a = static_cast<double>(u), b = static_cast<double>(v);
    u = static_cast<T>(a * c - b * s);
    v = static_cast<T>(b * c + a * s);
  });
  return absl::OkStatus();
}

}  // namespace moe
