#include "core/model/attention_block.h"

#include <cmath>

#include "core/moe/row_exchange.h"

namespace moe {

AttentionBlock::AttentionBlock(const config::ModelConfig& c, const Parallel& ranks)
    : ranks_(ranks), d_model_(c.d_model()), heads_(c.num_heads() / ranks.tp()), kv_heads_(c.num_kv_heads() / ranks.tp()), head_dim_(HeadDim(c)) {}

AttentionShape AttentionBlock::Shape(const TokenLayout& layout, int64_t half) const {
  AttentionShape s;
  s.batch = layout.batch();
  s.seq = layout.seq();
  s.heads = heads_;
  s.kv_heads = kv_heads_;
  s.head_dim = head_dim_;
  s.scale = 1.0 / std::sqrt(static_cast<double>(head_dim_));
  if (layout.cp() > 1) {
    s.query_seq = layout.chunk();
    s.query_begin = layout.half_begin(half);
  }
  return s;
}

absl::Status AttentionBlock::DeclareParams(ParamStore* store, const std::string& prefix, double stddev_in, double stddev_out) {
  const int64_t tp = ranks_.tp(), index = ranks_.tp_rank();
  Param p;
  p.name = prefix + ".qkv";
  p.shape = {q_cols() + 2 * kv_cols(), d_model_};
  p.init_stddev = stddev_in;
  int64_t at = 0;
  const struct { const char* name; int64_t rows; } parts[] = {{".q.weight", q_cols()}, {".k.weight", kv_cols()}, {".v.weight", kv_cols()}};
  for (const auto& part : parts) {
    ParamPiece piece;
    piece.name = prefix + part.name;
    piece.global_shape = {part.rows * tp, d_model_};
    piece.begin = {part.rows * index, 0};
    piece.shape = {part.rows, d_model_};
    piece.local_offset = at;
    at += piece.size();
    p.pieces.push_back(piece);
  }
  MOE_ASSIGN_OR_RETURN(qkv_, store->Declare(std::move(p)));
  MOE_ASSIGN_OR_RETURN(out_, store->DeclareBlock(prefix + ".o.weight", ParamKind::kDense, {d_model_, q_cols() * tp}, {0, q_cols() * index}, {d_model_, q_cols()}, stddev_out));
  return absl::OkStatus();
}

absl::Status AttentionBlock::GatherKeysAndValues(const ModuleContext& ctx, const PassInputs& in, Saved* s) {
  Device* d = ctx.device;
  const TokenLayout& l = *in.layout;
  const DType t = s->qkv_TQ.dtype();
  const int64_t all = l.rows() * l.cp(), width = 2 * kv_cols();
  MOE_ASSIGN_OR_RETURN(s->kv_SQ, ctx.arena->Make(t, {all, width}));
  const Arena::Mark mark = ctx.arena->Position();
  MOE_ASSIGN_OR_RETURN(TensorView mine, ctx.arena->Make(t, {l.rows(), width}));
  MOE_ASSIGN_OR_RETURN(TensorView parts, ctx.arena->Make(t, {all, width}));
  MOE_RETURN_IF_ERROR(d->Copy(KV(s->qkv_TQ), mine));
  MOE_RETURN_IF_ERROR(Annotate(AllGather(ranks_.group(GroupKind::kCp)->For("attention kv"), mine.data(), mine.bytes(), parts.data()), "attention kv"));
  MOE_RETURN_IF_ERROR(d->GatherRows(parts, in.on_device.sequence_order, s->kv_SQ));
  ctx.arena->Rewind(mark);
  return absl::OkStatus();
}

absl::Status AttentionBlock::Forward(const ModuleContext& ctx, const PassInputs& in, In x_TD, Saved* s, Out y_TD) {
  Device* d = ctx.device;
  const TokenLayout& l = *in.layout;
  const DType t = x_TD.dtype();
  const int64_t T = l.rows();
  Communicator* tp = ranks_.group(GroupKind::kTp);
  s->x_TD = x_TD;
  if (tp) {
    MOE_ASSIGN_OR_RETURN(s->x_TD, ctx.arena->Make(t, {T, d_model_}));
    MOE_RETURN_IF_ERROR(GatherRows(d, tp, x_TD, l.tp_rows(), s->x_TD, "attention gather"));
  }
  MOE_ASSIGN_OR_RETURN(s->qkv_TQ, ctx.arena->Make(t, {T, q_cols() + 2 * kv_cols()}));
  MOE_ASSIGN_OR_RETURN(s->o_TQ, ctx.arena->Make(t, {T, q_cols()}));
  MOE_ASSIGN_OR_RETURN(s->lse, ctx.arena->Make(t, {l.halves(), l.batch(), heads_, l.chunk()}));
  MOE_RETURN_IF_ERROR(d->Gemm(false, true, 1, s->x_TD, qkv_->value, 0, s->qkv_TQ));
  MOE_RETURN_IF_ERROR(d->Rotary(QK(s->qkv_TQ), head_dim_, in.on_device.positions_T, in.rotary.cos_PC, in.rotary.sin_PC, false));
  TensorView kv = KV(s->qkv_TQ);
  if (l.cp() > 1) {
    MOE_RETURN_IF_ERROR(GatherKeysAndValues(ctx, in, s));
    kv = s->kv_SQ;
  }
  const int64_t rows = l.batch() * l.chunk();
  for (int64_t half = 0; half < l.halves(); ++half)
    MOE_RETURN_IF_ERROR(d->AttentionForward(Shape(l, half), Q(s->qkv_TQ).Rows(half * rows, rows), K(kv), V(kv), s->o_TQ.Rows(half * rows, rows), s->lse.At(half)));
  if (!tp) return d->Gemm(false, true, 1, s->o_TQ, out_->value, 1, y_TD);
  const Arena::Mark mark = ctx.arena->Position();
  MOE_ASSIGN_OR_RETURN(TensorView partial, ctx.arena->Make(t, {T, d_model_}));
  MOE_RETURN_IF_ERROR(d->Gemm(false, true, 1, s->o_TQ, out_->value, 0, partial));
  MOE_RETURN_IF_ERROR(ReduceRows(d, ctx.arena, tp, partial, l.tp_rows(), y_TD, true, "attention reduce"));
  ctx.arena->Rewind(mark);
  return absl::OkStatus();
}

absl::Status AttentionBlock::BackwardOfAttention(const ModuleContext& ctx, const PassInputs& in, const Saved& s, In do_TQ, Out dqkv_TQ) {
  Device* d = ctx.device;
  const TokenLayout& l = *in.layout;
  if (l.cp() == 1) {
    const TensorView kv = KV(s.qkv_TQ), dkv = KV(dqkv_TQ);
    return d->AttentionBackward(Shape(l, 0), Q(s.qkv_TQ), K(kv), V(kv), s.o_TQ, s.lse.At(0), do_TQ, Q(dqkv_TQ), K(dkv), V(dkv));
  }
  const DType t = do_TQ.dtype();
  const int64_t all = l.rows() * l.cp(), width = 2 * kv_cols(), rows = l.batch() * l.chunk();
  const Arena::Mark mark = ctx.arena->Position();
  TensorView dkv[2];
  for (int64_t half = 0; half < 2; ++half) {
    MOE_ASSIGN_OR_RETURN(dkv[half], ctx.arena->Make(t, {all, width}));
    MOE_RETURN_IF_ERROR(d->AttentionBackward(Shape(l, half), Q(s.qkv_TQ).Rows(half * rows, rows), K(s.kv_SQ), V(s.kv_SQ), s.o_TQ.Rows(half * rows, rows), s.lse.At(half),
                                             do_TQ.Rows(half * rows, rows), Q(dqkv_TQ).Rows(half * rows, rows), K(dkv[half]), V(dkv[half])));
  }
  MOE_RETURN_IF_ERROR(d->Axpy(1, dkv[1], dkv[0]));
  MOE_RETURN_IF_ERROR(d->GatherRows(dkv[0], in.on_device.part_order, dkv[1]));
  MOE_ASSIGN_OR_RETURN(TensorView mine, ctx.arena->Make(t, {l.rows(), width}));
  MOE_RETURN_IF_ERROR(ReduceRows(d, ctx.arena, ranks_.group(GroupKind::kCp), dkv[1], l.cp_rows(), mine, false, "attention dkv reduce"));
  MOE_RETURN_IF_ERROR(d->Copy(mine, KV(dqkv_TQ)));
  ctx.arena->Rewind(mark);
  return absl::OkStatus();
}

absl::Status AttentionBlock::Backward(const ModuleContext& ctx, const PassInputs& in, const Saved& s, In dy_TD, Out dx_TD) {
  Device* d = ctx.device;
  const TokenLayout& l = *in.layout;
  const DType t = dy_TD.dtype();
  Communicator* tp = ranks_.group(GroupKind::kTp);
  TensorView dy = dy_TD;
  if (tp || ctx.later) {   // dy_TD changes as soon as this returns; what is left for later reads a copy
    MOE_ASSIGN_OR_RETURN(dy, ctx.arena->Make(t, {l.rows(), d_model_}));
    MOE_RETURN_IF_ERROR(GatherRows(d, tp, dy_TD, l.tp_rows(), dy, "attention gather"));
  }
  MOE_RETURN_IF_ERROR(WeightGrad(ctx, [d, dy, o = s.o_TQ, w = out_] { return d->Gemm(true, false, 1, dy, o, 1, w->grad); }));
  MOE_ASSIGN_OR_RETURN(TensorView do_TQ, ctx.arena->Make(t, s.o_TQ.shape()));
  MOE_RETURN_IF_ERROR(d->Gemm(false, false, 1, dy, out_->value, 0, do_TQ));
  MOE_ASSIGN_OR_RETURN(TensorView dqkv, ctx.arena->Make(t, s.qkv_TQ.shape()));
  MOE_RETURN_IF_ERROR(BackwardOfAttention(ctx, in, s, do_TQ, dqkv));
  MOE_RETURN_IF_ERROR(d->Rotary(QK(dqkv), head_dim_, in.on_device.positions_T, in.rotary.cos_PC, in.rotary.sin_PC, true));
  MOE_RETURN_IF_ERROR(WeightGrad(ctx, [d, dqkv, x = s.x_TD, w = qkv_] { return d->Gemm(true, false, 1, dqkv, x, 1, w->grad); }));
  if (!tp) return d->Gemm(false, false, 1, dqkv, qkv_->value, 0, dx_TD);
  MOE_ASSIGN_OR_RETURN(TensorView partial, ctx.arena->Make(t, {l.rows(), d_model_}));
  MOE_RETURN_IF_ERROR(d->Gemm(false, false, 1, dqkv, qkv_->value, 0, partial));
  return ReduceRows(d, ctx.arena, tp, partial, l.tp_rows(), dx_TD, false, "attention reduce");
}

}  // namespace moe
