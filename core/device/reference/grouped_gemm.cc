// Products and biases of groups of rows, group after group.
#include "core/device/reference/dispatch.h"
#include "core/device/reference/reference_device.h"

namespace moe {

absl::Status ReferenceDevice::GroupedGemm(GroupedForm form, In a, In b, absl::Span<const int64_t> offsets, double beta, Out c) {
  MOE_RETURN_IF_ERROR(CheckGroupedGemm(form, a, b, offsets, c).status());
  for (size_t g = 0; g + 1 < offsets.size(); ++g) {
    const int64_t begin = offsets[g], rows = offsets[g + 1] - begin, group = static_cast<int64_t>(g);
    switch (form) {
      case GroupedForm::kForward:
        MOE_RETURN_IF_ERROR(ReferenceDevice::Gemm(false, true, 1, a.Rows(begin, rows), b.At(group), beta, c.Rows(begin, rows)));
        break;
      case GroupedForm::kInputGrad:
        MOE_RETURN_IF_ERROR(ReferenceDevice::Gemm(false, false, 1, a.Rows(begin, rows), b.At(group), beta, c.Rows(begin, rows)));
        break;
      case GroupedForm::kWeightGrad:
        MOE_RETURN_IF_ERROR(ReferenceDevice::Gemm(true, false, 1, a.Rows(begin, rows), b.Rows(begin, rows), beta, c.At(group)));
        break;
    }
  }
  return absl::OkStatus();
}

absl::Status ReferenceDevice::GroupedBias(In b_eO, absl::Span<const int64_t> offsets, Out y_RO) {
  MOE_RETURN_IF_ERROR(CheckGroupedBias("GroupedBias", "y_RO", y_RO, "b_eO", b_eO, offsets));
  return ForFloat(y_RO.dtype(), [&](auto tag) {
    using T = decltype(tag);
    for (int64_t g = 0; g < b_eO.dim(0); ++g)
      for (int64_t r = offsets[g]; r < offsets[g + 1]; ++r)
        for (int64_t o = 0; o < y_RO.dim(1); ++o) Row<T>(y_RO, r)[o] += Row<T>(b_eO, g)[o];
  });
}

absl::Status ReferenceDevice::GroupedBiasGrad(In dy_RO, absl::Span<const int64_t> offsets, Out db_eO) {
  MOE_RETURN_IF_ERROR(CheckGroupedBias("GroupedBiasGrad", "dy_RO", dy_RO, "db_eO", db_eO, offsets));
  return ForFloat(dy_RO.dtype(), [&](auto tag) {
    using T = decltype(tag);
    for (int64_t g = 0; g < db_eO.dim(0); ++g) {
      for (int64_t o = 0; o < dy_RO.dim(1); ++o) {
        double sum = 0;
        for (int64_t r = offsets[g]; r < offsets[g + 1]; ++r) sum += Row<T>(dy_RO, r)[o];
        T& out = Row<T>(db_eO, g)[o];
        out = static_cast<T>(out + sum);
      }
    }
  });
}

}  // namespace moe
