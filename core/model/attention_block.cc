#include "core/model/attention_block.h"

#include <cmath>

namespace moe {

int64_t HeadDim(const config::ModelConfig& c) { return c.head_dim() ? c.head_dim() : c.d_model() / c.num_heads(); }

AttentionBlock::AttentionBlock(const config::ModelConfig& c)
    : d_model_(c.d_model()), heads_(c.num_heads()), kv_heads_(c.num_kv_heads()), head_dim_(HeadDim(c)) {}

AttentionShape AttentionBlock::Shape(int64_t batch, int64_t seq) const {
  AttentionShape s;
  s.batch = batch;
  s.seq = seq;
  s.heads = heads_;
  s.kv_heads = kv_heads_;
  s.head_dim = head_dim_;
  s.scale = 1.0 / std::sqrt(static_cast<double>(head_dim_));
  return s;
}

absl::Status AttentionBlock::DeclareParams(ParamStore* store, const std::string& prefix, double stddev_in, double stddev_out) {
  const int64_t q_rows = heads_ * head_dim_, kv_rows = kv_heads_ * head_dim_;
  Param p;
  p.name = prefix + ".qkv";
  p.shape = {q_rows + 2 * kv_rows, d_model_};
  p.init_stddev = stddev_in;
  int64_t at = 0;
  const struct { const char* name; int64_t rows; } parts[] = {{".q.weight", q_rows}, {".k.weight", kv_rows}, {".v.weight", kv_rows}};
  for (const auto& part : parts) {
    ParamPiece piece;
    piece.name = prefix + part.name;
    piece.global_shape = piece.shape = {part.rows, d_model_};
    piece.begin = {0, 0};
    piece.local_offset = at;
    at += piece.size();
    p.pieces.push_back(piece);
  }
  MOE_ASSIGN_OR_RETURN(qkv_, store->Declare(std::move(p)));
  MOE_ASSIGN_OR_RETURN(out_, store->DeclareWhole(prefix + ".o.weight", ParamKind::kDense, {d_model_, q_rows}, 0, stddev_out, true));
  return absl::OkStatus();
}

absl::Status AttentionBlock::Forward(const ModuleContext& ctx, const RotaryTables& rope, int64_t batch, int64_t seq, In x_TD, Saved* s, Out y_TD) {
  Device* d = ctx.device;
  const int64_t T = batch * seq, q_cols = heads_ * head_dim_;
  s->x_TD = x_TD;
  MOE_ASSIGN_OR_RETURN(s->qkv_TQ, ctx.arena->Make(x_TD.dtype(), {T, q_cols + 2 * kv_heads_ * head_dim_}));
  MOE_ASSIGN_OR_RETURN(s->o_TQ, ctx.arena->Make(x_TD.dtype(), {T, q_cols}));
  MOE_ASSIGN_OR_RETURN(s->lse_BHS, ctx.arena->Make(x_TD.dtype(), {batch, heads_, seq}));
  MOE_RETURN_IF_ERROR(d->Gemm(false, true, 1, x_TD, qkv_->value, 0, s->qkv_TQ));
  MOE_RETURN_IF_ERROR(d->Rotary(QK(s->qkv_TQ), head_dim_, rope.positions_T, rope.cos_PC, rope.sin_PC, false));
  MOE_RETURN_IF_ERROR(d->AttentionForward(Shape(batch, seq), Q(s->qkv_TQ), K(s->qkv_TQ), V(s->qkv_TQ), s->o_TQ, s->lse_BHS));
  return d->Gemm(false, true, 1, s->o_TQ, out_->value, 1, y_TD);
}

absl::Status AttentionBlock::Backward(const ModuleContext& ctx, const RotaryTables& rope, int64_t batch, int64_t seq, const Saved& s, In dy_TD, Out dx_TD) {
  Device* d = ctx.device;
  MOE_RETURN_IF_ERROR(d->Gemm(true, false, 1, dy_TD, s.o_TQ, 1, out_->grad));
  MOE_ASSIGN_OR_RETURN(TensorView do_TQ, ctx.arena->Make(dy_TD.dtype(), s.o_TQ.shape()));
  MOE_RETURN_IF_ERROR(d->Gemm(false, false, 1, dy_TD, out_->value, 0, do_TQ));
  MOE_ASSIGN_OR_RETURN(TensorView dqkv_TQ, ctx.arena->Make(dy_TD.dtype(), s.qkv_TQ.shape()));
  MOE_RETURN_IF_ERROR(d->AttentionBackward(Shape(batch, seq), Q(s.qkv_TQ), K(s.qkv_TQ), V(s.qkv_TQ), s.o_TQ, s.lse_BHS, do_TQ,
                                           Q(dqkv_TQ), K(dqkv_TQ), V(dqkv_TQ)));
  MOE_RETURN_IF_ERROR(d->Rotary(QK(dqkv_TQ), head_dim_, rope.positions_T, rope.cos_PC, rope.sin_PC, true));
  MOE_RETURN_IF_ERROR(d->Gemm(true, false, 1, dqkv_TQ, s.x_TD, 1, qkv_->grad));
  return d->Gemm(false, false, 1, dqkv_TQ, qkv_->value, 0, dx_TD);
}

}  // namespace moe
