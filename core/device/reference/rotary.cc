// Rotary positions, half rotation (arXiv 2104.09864): the pair (x_i, x_{i + h/2}) of a head turns by its angle.
#include "core/device/reference/dispatch.h"
#include "core/device/reference/reference_device.h"

namespace moe {

absl::Status ReferenceDevice::Rotary(Out x_TQ, int64_t head_dim, In positions_T, In cos_PC, In sin_PC, bool inverse) {
  MOE_RETURN_IF_ERROR(CheckRotary(x_TQ, head_dim, positions_T, cos_PC, sin_PC));
  return ForFloat(x_TQ.dtype(), [&](auto tag) {
    using T = decltype(tag);
    const int64_t half = head_dim / 2;
    for (int64_t t = 0; t < x_TQ.dim(0); ++t) {
      const int64_t pos = positions_T.as<int32_t>()[t];
      const T *cosines = Row<T>(cos_PC, pos), *sines = Row<T>(sin_PC, pos);
      for (T* head = Row<T>(x_TQ, t); head < Row<T>(x_TQ, t) + x_TQ.dim(1); head += head_dim) {
        for (int64_t i = 0; i < half; ++i) {
          const double c = cosines[i], s = inverse ? -sines[i] : sines[i], a = head[i], b = head[i + half];
          head[i] = static_cast<T>(a * c - b * s);
          head[i + half] = static_cast<T>(b * c + a * s);
        }
      }
    }
  });
}

}  // namespace moe
