// Operations on a few columns per token; too short for vectors unless a whole row is worked on.
#include <atomic>
#include <cmath>
#include <cstring>

#include "core/device/check.h"
#include "core/device/cpu/cpu_device.h"
#include "core/device/cpu/pieces.h"

namespace moe {
namespace {

// Keeps the K best seen so far in order; most columns fall at the first comparison. False where a score is not finite.
bool TopKOfRow(const float* s, int64_t E, int64_t K, int32_t* ids) {
  int64_t kept = 0;
  float worst = 0, finite = 0;   // `finite` turns into NaN with the first NaN or infinity
  for (int64_t e = 0; e < E; ++e) {
    finite += s[e] - s[e];
    if (kept == K && s[e] <= worst) continue;
    int64_t at = kept < K ? kept++ : K - 1;
    for (; at > 0 && s[ids[at - 1]] < s[e]; --at) ids[at] = ids[at - 1];
    ids[at] = static_cast<int32_t>(e);
    worst = s[ids[kept - 1]];
  }
  return finite == 0;
}

}  // namespace

absl::Status CpuDevice::TopK(In s_TE, Out ids_TK) {
  if (s_TE.dtype() != DType::kF32) return ReferenceDevice::TopK(s_TE, ids_TK);
  MOE_RETURN_IF_ERROR(CheckTopK(s_TE, ids_TK));
  const int64_t T = s_TE.dim(0), E = s_TE.dim(1), K = ids_TK.dim(1);
  std::atomic<int64_t> bad{T};   // the lowest bad row, whoever finds it
  ForRowBlocks(&pool_, T, E, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      if (TopKOfRow(Row<float>(s_TE, t), E, K, Row<int32_t>(ids_TK, t))) continue;
      int64_t lowest = bad.load();
      while (t < lowest && !bad.compare_exchange_weak(lowest, t)) {}
      return;
    }
  });
  const int64_t t = bad.load();
  if (t == T) return absl::OkStatus();
  const float* s = Row<float>(s_TE, t);
  const int64_t e = std::find_if(s, s + E, [](float v) { return !std::isfinite(v); }) - s;
  return TopKNotFinite(t, e, s[e]);
}

absl::Status CpuDevice::GatherColumns(In p_TE, In ids_TK, Out w_TK) {
  if (p_TE.dtype() != DType::kF32) return ReferenceDevice::GatherColumns(p_TE, ids_TK, w_TK);
  MOE_RETURN_IF_ERROR(CheckGatherColumns(p_TE, ids_TK, w_TK));
  const int64_t K = ids_TK.dim(1);
  ForRowBlocks(&pool_, ids_TK.dim(0), K, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int32_t* ids = Row<int32_t>(ids_TK, t);
      const float* p = Row<float>(p_TE, t);
      float* w = Row<float>(w_TK, t);
      for (int64_t k = 0; k < K; ++k) w[k] = ids[k] < 0 ? 0.0f : p[ids[k]];
    }
  });
  return absl::OkStatus();
}

absl::Status CpuDevice::ScatterColumns(In dw_TK, In ids_TK, Out dp_TE) {
  if (dw_TK.dtype() != DType::kF32) return ReferenceDevice::ScatterColumns(dw_TK, ids_TK, dp_TE);
  MOE_RETURN_IF_ERROR(CheckScatterColumns(dw_TK, ids_TK, dp_TE));
  const int64_t K = ids_TK.dim(1);
  ForRowBlocks(&pool_, ids_TK.dim(0), K, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const int32_t* ids = Row<int32_t>(ids_TK, t);
      const float* dw = Row<float>(dw_TK, t);
      float* dp = Row<float>(dp_TE, t);
      for (int64_t k = 0; k < K; ++k)
        if (ids[k] >= 0) dp[ids[k]] += dw[k];
    }
  });
  return absl::OkStatus();
}

absl::Status CpuDevice::NormalizeRows(In raw_TK, double eps, double scale, Out w_TK) {
  if (raw_TK.dtype() != DType::kF32) return ReferenceDevice::NormalizeRows(raw_TK, eps, scale, w_TK);
  MOE_RETURN_IF_ERROR(CheckNormalizeRows(raw_TK, w_TK));
  const int64_t K = raw_TK.dim(1);
  ForRowBlocks(&pool_, raw_TK.dim(0), K, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const float* raw = Row<float>(raw_TK, t);
      float* w = Row<float>(w_TK, t);
      double sum = 0;
      for (int64_t k = 0; k < K; ++k) sum += raw[k];
      const double factor = sum == 0 ? 0 : scale / (sum + eps);
      for (int64_t k = 0; k < K; ++k) w[k] = static_cast<float>(raw[k] * factor);
    }
  });
  return absl::OkStatus();
}

absl::Status CpuDevice::NormalizeRowsBackward(In raw_TK, double eps, double scale, In dw_TK, Out draw_TK) {
  if (raw_TK.dtype() != DType::kF32) return ReferenceDevice::NormalizeRowsBackward(raw_TK, eps, scale, dw_TK, draw_TK);
  MOE_RETURN_IF_ERROR(CheckNormalizeRowsBackward(raw_TK, dw_TK, draw_TK));
  const int64_t K = raw_TK.dim(1);
  ForRowBlocks(&pool_, raw_TK.dim(0), K, [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) {
      const float *raw = Row<float>(raw_TK, t), *dw = Row<float>(dw_TK, t);
      float* draw = Row<float>(draw_TK, t);
      double sum = 0, dot = 0;
      for (int64_t k = 0; k < K; ++k) {
        sum += raw[k];
        dot += static_cast<double>(dw[k]) * raw[k];
      }
      const double inverse = 1 / (sum + eps);
      for (int64_t k = 0; k < K; ++k) draw[k] = sum == 0 ? 0.0f : static_cast<float>(scale * (dw[k] - dot * inverse) * inverse);
    }
  });
  return absl::OkStatus();
}

absl::Status CpuDevice::AddRow(In c_E, double alpha, Out y_TE) {
  if (y_TE.dtype() != DType::kF32) return ReferenceDevice::AddRow(c_E, alpha, y_TE);
  MOE_RETURN_IF_ERROR(CheckAddRow(c_E, y_TE));
  ForRowBlocks(&pool_, y_TE.dim(0), y_TE.dim(1), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t) kernels_.runs.axpy(static_cast<float>(alpha), c_E.as<float>(), Row<float>(y_TE, t), y_TE.dim(1));
  });
  return absl::OkStatus();
}

absl::Status CpuDevice::AddScaledRows(In s_T, In x_TE, double alpha, Out y_TE) {
  if (x_TE.dtype() != DType::kF32) return ReferenceDevice::AddScaledRows(s_T, x_TE, alpha, y_TE);
  MOE_RETURN_IF_ERROR(CheckAddScaledRows(s_T, x_TE, y_TE));
  ForRowBlocks(&pool_, y_TE.dim(0), y_TE.dim(1), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      kernels_.runs.axpy(static_cast<float>(alpha * s_T.as<float>()[t]), Row<float>(x_TE, t), Row<float>(y_TE, t), y_TE.dim(1));
  });
  return absl::OkStatus();
}

absl::Status CpuDevice::MaskRows(In valid_T, Out y_TE) {
  if (y_TE.dtype() != DType::kF32) return ReferenceDevice::MaskRows(valid_T, y_TE);
  MOE_RETURN_IF_ERROR(CheckMaskRows(valid_T, y_TE));
  ForRowBlocks(&pool_, y_TE.dim(0), y_TE.dim(1), [&](int64_t begin, int64_t end) {
    for (int64_t t = begin; t < end; ++t)
      if (valid_T.as<uint8_t>()[t] == 0) std::memset(Row<float>(y_TE, t), 0, y_TE.dim(1) * sizeof(float));
  });
  return absl::OkStatus();
}

}  // namespace moe
