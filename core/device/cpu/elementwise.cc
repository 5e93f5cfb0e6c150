#include <cstring>

#include "core/base/random.h"
#include "core/device/check.h"
#include "core/device/cpu/cpu_device.h"
#include "core/device/cpu/pieces.h"

namespace moe {

absl::Status CpuDevice::Fill(Out y, double value) {
  if (y.dtype() != DType::kF32) return ReferenceDevice::Fill(y, value);
  MOE_RETURN_IF_ERROR(CheckFill(y));
  ForPieces(&pool_, PiecesOf({&y}), [&](int64_t r, int64_t i, int64_t n) { kernels_.runs.fill(static_cast<float>(value), Row<float>(y, r) + i, n); });
  return absl::OkStatus();
}

absl::Status CpuDevice::Copy(In x, Out y) {
  MOE_RETURN_IF_ERROR(CheckCopy(x, y));
  const Pieces pieces = PiecesOf({&x, &y});
  if (x.dtype() == DType::kF32 && y.dtype() == DType::kF32) {
    ForPieces(&pool_, pieces, [&](int64_t r, int64_t i, int64_t n) { std::memcpy(Row<float>(y, r) + i, Row<float>(x, r) + i, n * sizeof(float)); });
  } else if (x.dtype() == DType::kF32 && y.dtype() == DType::kF64) {
    ForPieces(&pool_, pieces, [&](int64_t r, int64_t i, int64_t n) { kernels_.runs.widen(Row<float>(x, r) + i, Row<double>(y, r) + i, n); });
  } else if (x.dtype() == DType::kF64 && y.dtype() == DType::kF32) {
    ForPieces(&pool_, pieces, [&](int64_t r, int64_t i, int64_t n) { kernels_.runs.narrow(Row<double>(x, r) + i, Row<float>(y, r) + i, n); });
  } else {
    return ReferenceDevice::Copy(x, y);
  }
  return absl::OkStatus();
}

absl::Status CpuDevice::Scale(Out y, double alpha) {
  if (y.dtype() != DType::kF32) return ReferenceDevice::Scale(y, alpha);
  MOE_RETURN_IF_ERROR(CheckScale(y));
  ForPieces(&pool_, PiecesOf({&y}), [&](int64_t r, int64_t i, int64_t n) { kernels_.runs.scale(static_cast<float>(alpha), Row<float>(y, r) + i, n); });
  return absl::OkStatus();
}

absl::Status CpuDevice::Axpy(double alpha, In x, Out y) {
  if (x.dtype() != DType::kF32) return ReferenceDevice::Axpy(alpha, x, y);
  MOE_RETURN_IF_ERROR(CheckAxpy(x, y));
  ForPieces(&pool_, PiecesOf({&y, &x}), [&](int64_t r, int64_t i, int64_t n) {
    kernels_.runs.axpy(static_cast<float>(alpha), Row<float>(x, r) + i, Row<float>(y, r) + i, n);
  });
  return absl::OkStatus();
}

absl::Status CpuDevice::Multiply(In a, In b, Out y) {
  if (a.dtype() != DType::kF32) return ReferenceDevice::Multiply(a, b, y);
  MOE_RETURN_IF_ERROR(CheckMultiply(a, b, y));
  ForPieces(&pool_, Pieces(1, y.size()), [&](int64_t, int64_t i, int64_t n) { kernels_.runs.multiply(a.as<float>() + i, b.as<float>() + i, y.as<float>() + i, n); });
  return absl::OkStatus();
}

// The numbers are core/base/random.h's, one by one in float64 (initial weights must not depend on the device); the
// workers only share them out.
absl::Status CpuDevice::RandomUniform(Out y, uint64_t key, int64_t first, double low, double high) {
  if (y.dtype() != DType::kF32) return ReferenceDevice::RandomUniform(y, key, first, low, high);
  MOE_RETURN_IF_ERROR(CheckRandomUniform(y));
  ForPieces(&pool_, Pieces(1, y.size(), 1024), [&](int64_t, int64_t i, int64_t n) {
    for (int64_t j = i; j < i + n; ++j) y.as<float>()[j] = static_cast<float>(low + (high - low) * moe::RandomUniform(key, static_cast<uint64_t>(first + j)));
  });
  return absl::OkStatus();
}

absl::Status CpuDevice::RandomNormal(Out y, uint64_t key, int64_t first, double mean, double stddev) {
  if (y.dtype() != DType::kF32) return ReferenceDevice::RandomNormal(y, key, first, mean, stddev);
  MOE_RETURN_IF_ERROR(CheckRandomNormal(y));
  const int64_t columns = RowLength(y);
  ForPieces(&pool_, Pieces(NumRows(y), columns, 1024), [&](int64_t r, int64_t i, int64_t n) {
    float* out = Row<float>(y, r);
    const uint64_t at = static_cast<uint64_t>(first + r * columns);
    for (int64_t j = i; j < i + n; ++j) out[j] = static_cast<float>(mean + stddev * moe::RandomNormal(key, at + static_cast<uint64_t>(j)));
  });
  return absl::OkStatus();
}

}  // namespace moe
