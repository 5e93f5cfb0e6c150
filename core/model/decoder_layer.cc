#include "core/model/decoder_layer.h"

#include <cmath>

#include "core/moe/row_exchange.h"

namespace moe {

double InitStddev(const config::ModelConfig& c, int64_t fan_in, bool residual) {
  const double base = c.init_std() > 0 ? c.init_std() : 1.0 / std::sqrt(static_cast<double>(fan_in));
  return residual ? base / std::sqrt(2.0 * static_cast<double>(c.num_layers())) : base;
}

double SmallInitStddev(const config::ModelConfig& c) { return c.init_std() > 0 ? c.init_std() : 0.02; }

MoeLayerSpec MakeMoeLayerSpec(const config::Config& c, const std::string& name, bool residual) {
  const config::ModelConfig& m = c.model();
  MoeLayerSpec s;
  s.name = name;
  s.d_model = m.d_model();
  s.d_hidden = m.d_hidden();
  s.num_global_experts = m.num_global_experts();
  s.top_k = m.top_k();
  s.init_stddev_router = SmallInitStddev(m);
  s.init_stddev_in = InitStddev(m, m.d_model(), false);
  s.init_stddev_out = InitStddev(m, m.d_hidden(), residual);
  s.gate = c.gate();
  s.expert = c.expert();
  return s;
}

absl::StatusOr<std::unique_ptr<DecoderLayer>> DecoderLayer::Make(const config::Config& c, int64_t index, const Placement& placement, const Parallel& ranks, const ModuleFactory& modules) {
  std::unique_ptr<DecoderLayer> layer(new DecoderLayer(c, index, ranks));
  const config::ModelConfig& m = c.model();
  if (index < m.num_dense_layers()) {
    ExpertSpec e;
    e.d_model = m.d_model();
    e.d_hidden = m.d_hidden_dense() ? m.d_hidden_dense() : m.d_hidden() * m.top_k();
    e.num_global_experts = 1;
    e.local_experts = {0};
    e.etp_rank = ranks.tp_rank();
    e.etp_size = ranks.tp();
    e.init_stddev_in = InitStddev(m, m.d_model(), false);
    e.init_stddev_out = InitStddev(m, e.d_hidden, true);
    e.param_kind = ParamKind::kDense;
    e.config = c.expert();
    MOE_ASSIGN_OR_RETURN(layer->dense_, modules.MakeExpert(e));
  } else {
    const MoeLayerSpec s = MakeMoeLayerSpec(c, absl::StrCat("layers.", index, ".moe"), /*residual=*/true);
    MoeGroups groups;
    groups.ep = ranks.group(GroupKind::kEp);
    groups.etp = ranks.group(GroupKind::kEtp);
    groups.batch = ranks.group(GroupKind::kStage);
    MOE_ASSIGN_OR_RETURN(layer->moe_, MoeLayer::Make(s, placement, groups, modules));
  }
  return layer;
}

absl::Status DecoderLayer::DeclareParams(ParamStore* store) {
  const config::ModelConfig& m = config_.model();
  const std::string prefix = absl::StrCat("layers.", index_);
  MOE_ASSIGN_OR_RETURN(norm1_, store->DeclareWhole(prefix + ".attention_norm.weight", ParamKind::kReplicated, {m.d_model()}, 1, 0, false));
  MOE_RETURN_IF_ERROR(attention_.DeclareParams(store, prefix + ".attention", InitStddev(m, m.d_model(), false), InitStddev(m, m.num_heads() * HeadDim(m), true)));
  MOE_ASSIGN_OR_RETURN(norm2_, store->DeclareWhole(prefix + ".ffn_norm.weight", ParamKind::kReplicated, {m.d_model()}, 1, 0, false));
  return moe_ ? moe_->DeclareParams(store, prefix + ".moe") : dense_->DeclareParams(store, prefix + ".ffn");
}

absl::Status DecoderLayer::DenseForward(const ModuleContext& ctx, const PassInputs& in, Saved* s, Out y_TD) {
  Device* d = ctx.device;
  const TokenLayout& l = *in.layout;
  const int64_t offsets[2] = {0, l.rows()};
  Communicator* tp = ranks_.group(GroupKind::kTp);
  s->ffn_x_TD = s->norm2_TD;
  if (!tp) {
    MOE_RETURN_IF_ERROR(dense_->Forward(ctx, s->ffn_x_TD, offsets, &s->dense, y_TD));
    return d->Axpy(1, s->mid_TD, y_TD);
  }
  MOE_ASSIGN_OR_RETURN(s->ffn_x_TD, ctx.arena->Make(y_TD.dtype(), {l.rows(), y_TD.dim(1)}));
  MOE_RETURN_IF_ERROR(GatherRows(d, tp, s->norm2_TD, l.tp_rows(), s->ffn_x_TD, "ffn gather"));
  MOE_ASSIGN_OR_RETURN(TensorView partial, ctx.arena->Make(y_TD.dtype(), s->ffn_x_TD.shape()));
  MOE_RETURN_IF_ERROR(dense_->Forward(ctx, s->ffn_x_TD, offsets, &s->dense, partial));
  MOE_RETURN_IF_ERROR(d->Copy(s->mid_TD, y_TD));
  return ReduceRows(d, ctx.arena, tp, partial, l.tp_rows(), y_TD, true, "ffn reduce");
}

absl::Status DecoderLayer::DenseBackward(const ModuleContext& ctx, const PassInputs& in, const Saved& s, In dy_TD, Out dx_TD) {
  Device* d = ctx.device;
  const TokenLayout& l = *in.layout;
  const int64_t offsets[2] = {0, l.rows()};
  Communicator* tp = ranks_.group(GroupKind::kTp);
  TensorView dy = dy_TD;
  if (tp || ctx.later) {   // the caller changes dy_TD before what is left for later reads it
    MOE_ASSIGN_OR_RETURN(dy, ctx.arena->Make(dy_TD.dtype(), {l.rows(), dy_TD.dim(1)}));
    MOE_RETURN_IF_ERROR(GatherRows(d, tp, dy_TD, l.tp_rows(), dy, "ffn gather"));
  }
  if (!tp) return dense_->Backward(ctx, s.ffn_x_TD, offsets, s.dense, dy, dx_TD);
  MOE_ASSIGN_OR_RETURN(TensorView partial, ctx.arena->Make(dy.dtype(), dy.shape()));
  MOE_RETURN_IF_ERROR(dense_->Backward(ctx, s.ffn_x_TD, offsets, s.dense, dy, partial));
  return ReduceRows(d, ctx.arena, tp, partial, l.tp_rows(), dx_TD, false, "ffn reduce");
}

absl::Status DecoderLayer::Forward(const ModuleContext& ctx, const PassInputs& in, In x_TD, Saved* s, Out y_TD, RoutingSums* sums, int64_t moe_index) {
  ranks_.At(place_);
  Device* d = ctx.device;
  const int64_t T = x_TD.dim(0), D = x_TD.dim(1);
  const DType t = x_TD.dtype();
  const double eps = config_.model().norm_eps();
  s->x_TD = x_TD;
  MOE_ASSIGN_OR_RETURN(s->rstd1_T, ctx.arena->Make(t, {T}));
  MOE_ASSIGN_OR_RETURN(s->rstd2_T, ctx.arena->Make(t, {T}));
  MOE_ASSIGN_OR_RETURN(TensorView norm1, ctx.arena->Make(t, {T, D}));
  MOE_ASSIGN_OR_RETURN(s->mid_TD, ctx.arena->Make(t, {T, D}));
  MOE_ASSIGN_OR_RETURN(s->norm2_TD, ctx.arena->Make(t, {T, D}));
  MOE_RETURN_IF_ERROR(d->RmsNormForward(x_TD, norm1_->value, eps, norm1, s->rstd1_T));
  MOE_RETURN_IF_ERROR(d->Copy(x_TD, s->mid_TD));
  MOE_RETURN_IF_ERROR(attention_.Forward(ctx, in, norm1, &s->attention, s->mid_TD));
  MOE_RETURN_IF_ERROR(d->RmsNormForward(s->mid_TD, norm2_->value, eps, s->norm2_TD, s->rstd2_T));
  if (!moe_) return DenseForward(ctx, in, s, y_TD);
  MOE_RETURN_IF_ERROR(d->Copy(s->mid_TD, y_TD));
  return moe_->Forward(ctx, s->norm2_TD, in.on_device.valid_T, true, &s->moe, y_TD, sums, moe_index);
}

absl::Status DecoderLayer::Backward(const ModuleContext& ctx, const PassInputs& in, const Saved& s, In aux_E, double z_coef, Out dx_TD) {
  ranks_.At(place_);
  Device* d = ctx.device;
  MOE_ASSIGN_OR_RETURN(TensorView dnorm, ctx.arena->Make(dx_TD.dtype(), dx_TD.shape()));
  if (moe_) {
    TensorView dy = dx_TD;
    if (ctx.later) {   // dx_TD changes below
      MOE_ASSIGN_OR_RETURN(dy, ctx.arena->Make(dx_TD.dtype(), dx_TD.shape()));
      MOE_RETURN_IF_ERROR(d->Copy(dx_TD, dy));
    }
    MOE_RETURN_IF_ERROR(moe_->Backward(ctx, dy, s.moe, aux_E, z_coef, dnorm));
  } else {
    MOE_RETURN_IF_ERROR(DenseBackward(ctx, in, s, dx_TD, dnorm));
  }
  MOE_RETURN_IF_ERROR(d->RmsNormBackward(s.mid_TD, norm2_->value, s.rstd2_T, dnorm, dx_TD, true, norm2_->grad));
  MOE_RETURN_IF_ERROR(attention_.Backward(ctx, in, s.attention, dx_TD, dnorm));
  return d->RmsNormBackward(s.x_TD, norm1_->value, s.rstd1_T, dnorm, dx_TD, true, norm1_->grad);
}

}  // namespace moe
