#include "core/device/reference/dispatch.h"
#include "core/device/reference/reference_device.h"

namespace moe {

absl::Status ReferenceDevice::EmbeddingForward(In ids_T, In w_VD, Out y_TD) {
  MOE_RETURN_IF_ERROR(CheckEmbedding("EmbeddingForward", ids_T, "y_TD", y_TD, "w_VD", w_VD));
  return ForFloat(y_TD.dtype(), [&](auto tag) {
    using T = decltype(tag);
    for (int64_t t = 0; t < y_TD.dim(0); ++t)
      for (int64_t i = 0; i < y_TD.dim(1); ++i) Row<T>(y_TD, t)[i] = Row<T>(w_VD, ids_T.as<int32_t>()[t])[i];
  });
}

absl::Status ReferenceDevice::EmbeddingBackward(In ids_T, In dy_TD, Out dw_VD) {
  MOE_RETURN_IF_ERROR(CheckEmbedding("EmbeddingBackward", ids_T, "dy_TD", dy_TD, "dw_VD", dw_VD));
  return ForFloat(dy_TD.dtype(), [&](auto tag) {
    using T = decltype(tag);
    for (int64_t t = 0; t < dy_TD.dim(0); ++t)
      for (int64_t i = 0; i < dy_TD.dim(1); ++i) Row<T>(dw_VD, ids_T.as<int32_t>()[t])[i] += Row<T>(dy_TD, t)[i];
  });
}

}  // namespace moe
