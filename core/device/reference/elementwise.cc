// Fill, Copy, Scale, Axpy and random numbers: the same for every element.
#include <cstring>

#include "core/base/random.h"
#include "core/device/reference/dispatch.h"
#include "core/device/reference/reference_device.h"

namespace moe {
namespace {

template <typename T>
void FillAs(Out y, double value) {
  for (int64_t r = 0; r < NumRows(y); ++r)
    for (int64_t i = 0; i < RowLength(y); ++i) Row<T>(y, r)[i] = static_cast<T>(value);
}

template <typename From, typename To>
void Convert(In x, Out y) {
  for (int64_t r = 0; r < NumRows(x); ++r)
    for (int64_t i = 0; i < RowLength(x); ++i) Row<To>(y, r)[i] = static_cast<To>(Row<From>(x, r)[i]);
}

}  // namespace

absl::Status ReferenceDevice::Fill(Out y, double value) {
  MOE_RETURN_IF_ERROR(CheckFill(y));
  switch (y.dtype()) {
    case DType::kF32: FillAs<float>(y, value); break;
    case DType::kF64: FillAs<double>(y, value); break;
    case DType::kI32: FillAs<int32_t>(y, value); break;
    case DType::kI64: FillAs<int64_t>(y, value); break;
    case DType::kU8: FillAs<uint8_t>(y, value); break;
  }
  return absl::OkStatus();
}

absl::Status ReferenceDevice::Copy(In x, Out y) {
  MOE_RETURN_IF_ERROR(CheckCopy(x, y));
  if (x.dtype() == DType::kF32 && y.dtype() == DType::kF64) Convert<float, double>(x, y);
  else if (x.dtype() == DType::kF64 && y.dtype() == DType::kF32) Convert<double, float>(x, y);
  else if (SizeOf(x.dtype()) == 8) Convert<int64_t, int64_t>(x, y);   // the same dtype: only the size matters
  else if (SizeOf(x.dtype()) == 4) Convert<int32_t, int32_t>(x, y);
  else Convert<uint8_t, uint8_t>(x, y);
  return absl::OkStatus();
}

absl::Status ReferenceDevice::Scale(Out y, double alpha) {
  MOE_RETURN_IF_ERROR(CheckScale(y));
  return ForFloat(y.dtype(), [&](auto tag) {
    using T = decltype(tag);
    for (int64_t r = 0; r < NumRows(y); ++r) {
      T* out = Row<T>(y, r);
      for (int64_t i = 0; i < RowLength(y); ++i) out[i] = static_cast<T>(out[i] * alpha);
    }
  });
}

absl::Status ReferenceDevice::Axpy(double alpha, In x, Out y) {
  MOE_RETURN_IF_ERROR(CheckAxpy(x, y));
  return ForFloat(y.dtype(), [&](auto tag) {
    using T = decltype(tag);
    for (int64_t r = 0; r < NumRows(y); ++r) {
      const T* in = Row<T>(x, r);
      T* out = Row<T>(y, r);
      for (int64_t i = 0; i < RowLength(y); ++i) out[i] = static_cast<T>(out[i] + alpha * in[i]);
    }
  });
}

absl::Status ReferenceDevice::RandomNormal(Out y, uint64_t key, int64_t first, double mean, double stddev) {
  MOE_RETURN_IF_ERROR(CheckRandomNormal(y));
  return ForFloat(y.dtype(), [&](auto tag) {
    using T = decltype(tag);
    uint64_t index = static_cast<uint64_t>(first);
    for (int64_t r = 0; r < NumRows(y); ++r)
      for (int64_t i = 0; i < RowLength(y); ++i) Row<T>(y, r)[i] = static_cast<T>(mean + stddev * moe::RandomNormal(key, index++));
  });
}

}  // namespace moe
