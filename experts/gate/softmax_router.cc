#include "experts/gate/softmax_router.h"

#include "core/device/host_copy.h"

#include <cmath>
#include <vector>

namespace moe {

absl::Status SoftmaxRouter::DeclareParams(ParamStore* store, const std::string& prefix) {
  MOE_ASSIGN_OR_RETURN(weight_, store->DeclareWhole(prefix + ".weight", ParamKind::kReplicated, {spec_.num_global_experts, spec_.d_model}, 0, spec_.init_stddev, true));
  return absl::OkStatus();
}

absl::Status SoftmaxRouter::Select(const ModuleContext& ctx, In given_TD, In valid_T, Routing* r) {
  Device* d = ctx.device;
  TensorView x_TD = given_TD;
  if (valid_T.defined()) {
    if (!r->x_TD.defined()) {
      MOE_ASSIGN_OR_RETURN(r->x_TD, ctx.arena->Make(x_TD.dtype(), x_TD.shape()));
      MOE_RETURN_IF_ERROR(d->Copy(x_TD, r->x_TD));
    }
    MOE_RETURN_IF_ERROR(d->MaskRows(valid_T, r->x_TD));
    x_TD = r->x_TD;
  }
  const int64_t T = x_TD.dim(0), E = spec_.num_global_experts, K = spec_.top_k;
  const DType t = x_TD.dtype();
  MOE_ASSIGN_OR_RETURN(r->logits_TE, ctx.arena->Make(t, {T, E}));
  MOE_ASSIGN_OR_RETURN(r->probs_TE, ctx.arena->Make(t, {T, E}));
  MOE_ASSIGN_OR_RETURN(r->lse_T, ctx.arena->Make(t, {T}));
  MOE_ASSIGN_OR_RETURN(r->ids_TK, ctx.arena->Make(DType::kI32, {T, K}));
  MOE_ASSIGN_OR_RETURN(r->raw_TK, ctx.arena->Make(t, {T, K}));
  MOE_RETURN_IF_ERROR(d->Gemm(false, true, 1, x_TD, weight_->value, 0, r->logits_TE));
  // Softmax turns a logit of -inf into an innocent 0; the sum does not. Only then is it worth naming the row.
  MOE_ASSIGN_OR_RETURN(const double sum, d->Sum(r->logits_TE));
  if (!std::isfinite(sum)) MOE_RETURN_IF_ERROR(Annotate(d->TopK(r->logits_TE, r->ids_TK), "router logits"));
  MOE_RETURN_IF_ERROR(d->Softmax(r->logits_TE, r->probs_TE, r->lse_T));
  MOE_RETURN_IF_ERROR(d->TopK(r->probs_TE, r->ids_TK));
  if (valid_T.defined()) {
    // Ids are the engine's bookkeeping: they go to the host for the plan anyway.
    std::vector<int32_t> ids(T * K);
    std::vector<uint8_t> valid(T);
    MOE_RETURN_IF_ERROR(d->CopyToHost(ids.data(), r->ids_TK));
    MOE_RETURN_IF_ERROR(d->CopyToHost(valid.data(), valid_T));
    for (int64_t i = 0; i < T * K; ++i)
      if (valid[i / K] == 0) ids[i] = -1;
    MOE_RETURN_IF_ERROR(d->CopyFromHost(r->ids_TK, ids.data()));
  }
  return d->GatherColumns(r->probs_TE, r->ids_TK, r->raw_TK);
}

absl::Status SoftmaxRouter::Backward(const ModuleContext& ctx, In given_TD, In valid_T, In ids_TK, const Routing& r, In draw_TK, In aux_E, double z_coef, Out dx_TD) {
  Device* d = ctx.device;
  const TensorView& x_TD = r.x_TD.defined() ? r.x_TD : given_TD;
  const DType t = x_TD.dtype();
  MOE_ASSIGN_OR_RETURN(TensorView dlogits, ctx.arena->Make(t, r.logits_TE.shape()));
  MOE_RETURN_IF_ERROR(d->Fill(dlogits, 0));
  MOE_RETURN_IF_ERROR(d->ScatterColumns(draw_TK, ids_TK, dlogits));
  if (aux_E.defined()) MOE_RETURN_IF_ERROR(d->AddRow(aux_E, 1, dlogits));
  MOE_RETURN_IF_ERROR(d->SoftmaxBackward(r.probs_TE, dlogits, dlogits));
  // d/dl of lse^2 / 2 is lse * softmax(l).
  if (z_coef != 0) MOE_RETURN_IF_ERROR(d->AddScaledRows(r.lse_T, r.probs_TE, z_coef, dlogits));
  if (valid_T.defined()) MOE_RETURN_IF_ERROR(d->MaskRows(valid_T, dlogits));
  MOE_RETURN_IF_ERROR(WeightGrad(ctx, [d, dlogits, x_TD, w = weight_] { return d->Gemm(true, false, 1, dlogits, x_TD, 1, w->grad); }));
  return d->Gemm(false, false, 1, dlogits, weight_->value, 1, dx_TD);
}

absl::Status CheckGateSpec(const GateSpec& spec) {
  if (spec.num_global_experts < 1) return InvalidArgument("model.num_global_experts is ", spec.num_global_experts, ", must be at least 1");
  if (spec.top_k < 1 || spec.top_k > spec.num_global_experts)
    return InvalidArgument("model.top_k is ", spec.top_k, ", must be between 1 and model.num_global_experts, which is ", spec.num_global_experts);
  if (spec.d_model < 1) return InvalidArgument("model.d_model is ", spec.d_model, ", must be at least 1");
  return absl::OkStatus();
}

absl::Status ZeroDropped(const ModuleContext& ctx, In ids_TK, TensorView* weights_TK) {
  std::vector<int32_t> column(ids_TK.size());
  MOE_RETURN_IF_ERROR(ctx.device->CopyToHost(column.data(), ids_TK));
  for (size_t i = 0; i < column.size(); ++i)
    if (column[i] >= 0) column[i] = static_cast<int32_t>(static_cast<int64_t>(i) % ids_TK.dim(1));
  MOE_ASSIGN_OR_RETURN(const TensorView index, ToDevice(ctx.arena, DType::kI32, ids_TK.shape(), column.data()));
  const TensorView all = *weights_TK;
  MOE_ASSIGN_OR_RETURN(*weights_TK, ctx.arena->Make(all.dtype(), all.shape()));
  return ctx.device->GatherColumns(all, index, *weights_TK);
}

}  // namespace moe
