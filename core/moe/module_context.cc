#include "core/moe/module_context.h"

namespace moe {

absl::Status TokenNoise(const ModuleContext& ctx, double low, double high, Out y_TD) {
  const int64_t width = y_TD.dim(1);
  if (ctx.token_runs == nullptr) return ctx.device->RandomUniform(y_TD, ctx.noise_key, ctx.first_token * width, low, high);
  int64_t rows = 0;
  for (const TokenRun& run : *ctx.token_runs) rows += run.rows;
  if (rows != y_TD.dim(0)) return Internal("token runs hold ", rows, " rows, the tensor has ", y_TD.dim(0));
  int64_t row = 0;
  for (const TokenRun& run : *ctx.token_runs) {
    MOE_RETURN_IF_ERROR(ctx.device->RandomUniform(y_TD.Rows(row, run.rows), ctx.noise_key, run.first_token * width, low, high));
    row += run.rows;
  }
  return absl::OkStatus();
}

}  // namespace moe
