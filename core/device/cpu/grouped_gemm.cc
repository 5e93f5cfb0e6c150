// Products of groups of rows: each group is one product of its own, whatever the form; which rows and columns a
// worker gets is decided over all groups together (matmul.h), so few large experts and many small ones both fill the
// workers.
#include <algorithm>

#include "core/device/check.h"
#include "core/device/cpu/cpu_device.h"
#include "core/device/rows.h"

namespace moe {

absl::Status CpuDevice::GroupedGemm(GroupedForm form, In a, In b, absl::Span<const int64_t> offsets, double beta, Out c) {
  if (c.dtype() != DType::kF32) return ReferenceDevice::GroupedGemm(form, a, b, offsets, beta, c);
  MOE_ASSIGN_OR_RETURN(const GroupedDims dims, CheckGroupedGemm(form, a, b, offsets, c));
  matmul_.Clear();
  for (int64_t g = 0; g < dims.groups; ++g) {
    const int64_t begin = offsets[g], rows = offsets[g + 1] - begin;
    MatMul p;
    p.beta = static_cast<float>(beta);
    p.a = a.as<float>() + begin * a.stride(0), p.lda = a.stride(0);
    switch (form) {
      case GroupedForm::kForward:
      case GroupedForm::kInputGrad:
        p.trans_b = form == GroupedForm::kForward;
        p.m = rows;
        p.n = form == GroupedForm::kForward ? dims.out : dims.in;
        p.k = form == GroupedForm::kForward ? dims.in : dims.out;
        p.b = b.as<float>() + g * b.stride(0), p.ldb = b.stride(1);
        p.c = c.as<float>() + begin * c.stride(0), p.ldc = c.stride(0);
        break;
      case GroupedForm::kWeightGrad:
        p.trans_a = true;
        p.m = dims.out, p.n = dims.in, p.k = rows;
        p.b = b.as<float>() + begin * b.stride(0), p.ldb = b.stride(0);
        p.c = c.as<float>() + g * c.stride(0), p.ldc = c.stride(1);
        break;
    }
    matmul_.Add(p);
  }
  matmul_.Run();
  return absl::OkStatus();
}

namespace {

constexpr int64_t kRowsOfTask = 64;
constexpr int64_t kColumnsOfTask = 128;

}  // namespace

absl::Status CpuDevice::GroupedBias(In b_eO, absl::Span<const int64_t> offsets, Out y_RO) {
  if (y_RO.dtype() != DType::kF32) return ReferenceDevice::GroupedBias(b_eO, offsets, y_RO);
  MOE_RETURN_IF_ERROR(CheckGroupedBias("GroupedBias", "y_RO", y_RO, "b_eO", b_eO, offsets));
  const int64_t R = y_RO.dim(0), O = y_RO.dim(1);
  pool_.ParallelFor((R + kRowsOfTask - 1) / kRowsOfTask, [&](int64_t task) {
    const int64_t begin = task * kRowsOfTask, end = std::min(R, begin + kRowsOfTask);
    // The group of the first row: the last one that begins at or before it (empty groups have no rows).
    int64_t g = std::upper_bound(offsets.begin(), offsets.end(), begin) - offsets.begin() - 1;
    for (int64_t r = begin; r < end; ++r) {
      while (r >= offsets[g + 1]) ++g;
      kernels_.elementwise.add(Row<float>(b_eO, g), Row<float>(y_RO, r), O);
    }
  });
  return absl::OkStatus();
}

absl::Status CpuDevice::GroupedBiasGrad(In dy_RO, absl::Span<const int64_t> offsets, Out db_eO) {
  if (dy_RO.dtype() != DType::kF32) return ReferenceDevice::GroupedBiasGrad(dy_RO, offsets, db_eO);
  MOE_RETURN_IF_ERROR(CheckGroupedBias("GroupedBiasGrad", "dy_RO", dy_RO, "db_eO", db_eO, offsets));
  const int64_t e = db_eO.dim(0), O = db_eO.dim(1), blocks = (O + kColumnsOfTask - 1) / kColumnsOfTask;
  pool_.ParallelFor(e * blocks, [&](int64_t task) {
    const int64_t g = task / blocks, first = task % blocks * kColumnsOfTask, n = std::min(kColumnsOfTask, O - first);
    if (offsets[g] == offsets[g + 1]) return;
    // Sums of at most kRowsOfTask rows, then the sum of these: the error grows with neither count alone.
    float total[kColumnsOfTask] = {};
    for (int64_t r0 = offsets[g]; r0 < offsets[g + 1]; r0 += kRowsOfTask) {
      float part[kColumnsOfTask] = {};
      for (int64_t r = r0; r < std::min(r0 + kRowsOfTask, offsets[g + 1]); ++r) kernels_.elementwise.add(Row<float>(dy_RO, r) + first, part, n);
      kernels_.elementwise.add(part, total, n);
    }
    kernels_.elementwise.add(total, Row<float>(db_eO, g) + first, n);
  });
  return absl::OkStatus();
}

}  // namespace moe
