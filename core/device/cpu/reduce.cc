// Sums in float64: one partial sum per piece, the partial sums added in order, so that the bits depend on the shape alone.
#include <algorithm>
#include <cstring>

#include "core/device/check.h"
#include "core/device/cpu/cpu_device.h"
#include "core/device/cpu/pieces.h"

namespace moe {
namespace {

// kernel(run, its length) of the runs of each piece, put together by `join`.
template <typename Kernel, typename Join>
double ReducePieces(ThreadPool* pool, In x, std::vector<double>* partial, Kernel kernel, Join join) {
  const Pieces pieces = PiecesOf({&x});
  partial->assign(pieces.tasks(), 0.0);
  pool->ParallelFor(pieces.tasks(), [&](int64_t task) {
    double sum = 0;
    pieces.Each(task, [&](int64_t r, int64_t i, int64_t n) { sum = join(sum, kernel(Row<float>(x, r) + i, n)); });
    (*partial)[task] = sum;
  });
  double sum = 0;
  for (double s : *partial) sum = join(sum, s);
  return sum;
}

double Add(double a, double b) { return a + b; }

// The bits of the largest |x|: without the sign, bits are in the order of the values, and not-a-number is above them all.
uint32_t MaxAbsBits(const float* x, int64_t n) {
  uint32_t most = 0;
  for (int64_t i = 0; i < n; ++i) {
    uint32_t bits;
    std::memcpy(&bits, x + i, sizeof(bits));
    most = std::max(most, bits & 0x7fffffffu);
  }
  return most;
}

}  // namespace

absl::StatusOr<double> CpuDevice::Sum(In x) {
  if (x.dtype() != DType::kF32) return ReferenceDevice::Sum(x);
  MOE_RETURN_IF_ERROR(CheckReduce("Sum", x));
  return ReducePieces(&pool_, x, &partial_, kernels_.runs.sum, Add);
}

absl::StatusOr<double> CpuDevice::SumSquares(In x) {
  if (x.dtype() != DType::kF32) return ReferenceDevice::SumSquares(x);
  MOE_RETURN_IF_ERROR(CheckReduce("SumSquares", x));
  return ReducePieces(&pool_, x, &partial_, kernels_.runs.sum_squares, Add);
}

absl::StatusOr<double> CpuDevice::MaxAbs(In x) {
  if (x.dtype() != DType::kF32) return ReferenceDevice::MaxAbs(x);
  MOE_RETURN_IF_ERROR(CheckReduce("MaxAbs", x));
  // Bits as numbers: a double holds 32 of them exactly.
  const auto larger = [](double a, double b) { return std::max(a, b); };
  const uint32_t bits = static_cast<uint32_t>(ReducePieces(&pool_, x, &partial_, MaxAbsBits, larger));
  float most;
  std::memcpy(&most, &bits, sizeof(most));
  return most;
}

absl::Status CpuDevice::ColumnSum(In x_TE, Out sum_E, bool accumulate) {
  if (x_TE.dtype() != DType::kF32) return ReferenceDevice::ColumnSum(x_TE, sum_E, accumulate);
  MOE_RETURN_IF_ERROR(CheckColumnSum(x_TE, sum_E));
  const int64_t T = x_TE.dim(0), E = x_TE.dim(1);
  if (E == 0) return absl::OkStatus();
  const int64_t block = std::max<int64_t>(1, kElementsOfPiece / E), blocks = (T + block - 1) / block;
  partial_.assign(blocks * E, 0.0);
  pool_.ParallelFor(blocks, [&](int64_t b) {
    for (int64_t t = b * block; t < std::min(T, (b + 1) * block); ++t) kernels_.runs.add_wide(Row<float>(x_TE, t), &partial_[b * E], E);
  });
  float* out = sum_E.as<float>();
  for (int64_t e = 0; e < E; ++e) {
    double sum = accumulate ? out[e] : 0.0;
    for (int64_t b = 0; b < blocks; ++b) sum += partial_[b * E + e];
    out[e] = static_cast<float>(sum);
  }
  return absl::OkStatus();
}

}  // namespace moe
