#include "core/model/vocabulary.h"

#include <algorithm>

#include "core/device/host_copy.h"
#include "core/moe/row_exchange.h"
#include "core/plan/loss_rows.h"

namespace moe {

VocabularyTable::VocabularyTable(const config::ModelConfig& c, const Parallel& ranks)
    : ranks_(ranks), vocab_(c.vocab_size()), d_model_(c.d_model()), begin_(ShareBegin(vocab_, ranks.tp(), ranks.tp_rank())), rows_(ShareSize(vocab_, ranks.tp(), ranks.tp_rank())),
      block_(LossRows(vocab_, ranks.tp())) {}

absl::Status VocabularyTable::DeclareParams(ParamStore* store, const std::string& name, double stddev, bool counted) {
  MOE_ASSIGN_OR_RETURN(table_, store->DeclareBlock(name, ParamKind::kDense, {vocab_, d_model_}, {begin_, 0}, {rows_, d_model_}, stddev));
  table_->counted = counted;
  return absl::OkStatus();
}

std::vector<int32_t> VocabularyTable::Local(const std::vector<int32_t>& ids) const {
  std::vector<int32_t> out(ids.size());
  for (size_t i = 0; i < ids.size(); ++i) {
    const int64_t at = ids[i] - begin_;
    out[i] = at >= 0 && at < rows_ ? static_cast<int32_t>(at) : -1;
  }
  return out;
}

absl::Status VocabularyTable::Embed(const ModuleContext& ctx, const TokenLayout& l, Out y_TD) {
  Device* d = ctx.device;
  Communicator* tp = ranks_.group(GroupKind::kTp);
  const Arena::Mark mark = ctx.arena->Position();
  const std::vector<int32_t> local = Local(l.ids());
  MOE_ASSIGN_OR_RETURN(const TensorView index, ToDevice(ctx.arena, DType::kI32, {l.rows()}, local.data()));
  if (!tp) {
    MOE_RETURN_IF_ERROR(d->EmbeddingForward(index, table_->value, y_TD));
  } else {   // zeros where another rank has the row
    MOE_ASSIGN_OR_RETURN(const TensorView partial, ctx.arena->Make(y_TD.dtype(), {l.rows(), d_model_}));
    MOE_RETURN_IF_ERROR(d->GatherRows(table_->value, index, partial));
    MOE_RETURN_IF_ERROR(ReduceRows(d, ctx.arena, tp, partial, l.tp_rows(), y_TD, false, "embedding reduce"));
  }
  ctx.arena->Rewind(mark);
  return absl::OkStatus();
}

absl::Status VocabularyTable::EmbedBackward(const ModuleContext& ctx, const TokenLayout& l, In dy_TD) {
  Device* d = ctx.device;
  Communicator* tp = ranks_.group(GroupKind::kTp);
  std::vector<int32_t> rows, ids;   // of the tokens whose row is here
  const std::vector<int32_t> local = Local(l.ids());
  for (size_t i = 0; i < local.size(); ++i) {
    if (local[i] < 0) continue;
    rows.push_back(static_cast<int32_t>(i));
    ids.push_back(local[i]);
  }
  const int64_t n = static_cast<int64_t>(ids.size());
  MOE_ASSIGN_OR_RETURN(const TensorView ids_N, ToDevice(ctx.arena, DType::kI32, {n}, ids.data()));
  TensorView dy = dy_TD;
  if (tp || ctx.later) {
    MOE_ASSIGN_OR_RETURN(dy, ctx.arena->Make(dy_TD.dtype(), {l.rows(), d_model_}));
    MOE_RETURN_IF_ERROR(GatherRows(d, tp, dy_TD, l.tp_rows(), dy, "embedding gather"));
  }
  if (n < l.rows()) {
    MOE_ASSIGN_OR_RETURN(const TensorView index, ToDevice(ctx.arena, DType::kI32, {n}, rows.data()));
    MOE_ASSIGN_OR_RETURN(const TensorView picked, ctx.arena->Make(dy.dtype(), {n, d_model_}));
    MOE_RETURN_IF_ERROR(d->GatherRows(dy, index, picked));
    dy = picked;
  }
  return WeightGrad(ctx, [d, ids_N, dy, w = table_] { return d->EmbeddingBackward(ids_N, dy, w->grad); });
}

absl::Status VocabularyTable::CrossEntropy(const ModuleContext& ctx, const int32_t* labels, bool backward, double grad_scale, Out logits, double* sum) {
  Device* d = ctx.device;
  Communicator* tp = ranks_.group(GroupKind::kTp);
  const int64_t n = logits.dim(0), ranks = ranks_.tp();
  const DType t = logits.dtype();
  const std::vector<int32_t> given(labels, labels + n);
  if (!tp) {
    MOE_ASSIGN_OR_RETURN(const TensorView nll, ctx.arena->Make(t, {n}));
    MOE_ASSIGN_OR_RETURN(const TensorView label, ToDevice(ctx.arena, DType::kI32, {n}, given.data()));
    MOE_RETURN_IF_ERROR(d->CrossEntropy(logits, label, nll, backward, grad_scale));
    MOE_ASSIGN_OR_RETURN(const double part, d->Sum(nll));
    *sum += part;
    return absl::OkStatus();
  }
  // With l_r the logits of rank r's columns and s_r = logsumexp(l_r): s = logsumexp_r(s_r), -log p = s - l[label], and
  // p = softmax(l_r) * exp(s_r - s). The ranks tell each other s_r and the label's logit, which is 0 where it is not theirs.
  std::vector<int32_t> mine = Local(given), transpose(n * ranks), mine_of_ratio(n);
  std::vector<uint8_t> valid(n);
  for (int64_t i = 0; i < n; ++i) {
    valid[i] = given[i] >= 0;
    mine_of_ratio[i] = given[i] >= 0 ? static_cast<int32_t>(ranks_.tp_rank()) : -1;
    for (int64_t r = 0; r < ranks; ++r) transpose[i * ranks + r] = static_cast<int32_t>(r * 2 * n + i);
  }
  MOE_ASSIGN_OR_RETURN(const TensorView label, ToDevice(ctx.arena, DType::kI32, {n, 1}, mine.data()));
  MOE_ASSIGN_OR_RETURN(const TensorView by_row, ToDevice(ctx.arena, DType::kI32, {n * ranks}, transpose.data()));
  MOE_ASSIGN_OR_RETURN(const TensorView my_column, ToDevice(ctx.arena, DType::kI32, {n, 1}, mine_of_ratio.data()));
  MOE_ASSIGN_OR_RETURN(const TensorView valid_T, ToDevice(ctx.arena, DType::kU8, {n}, valid.data()));
  MOE_ASSIGN_OR_RETURN(const TensorView told, ctx.arena->Make(t, {2, n}));
  MOE_ASSIGN_OR_RETURN(const TensorView heard, ctx.arena->Make(t, {ranks * 2, n}));
  MOE_ASSIGN_OR_RETURN(const TensorView ratio, ctx.arena->Make(t, {n, ranks}));
  MOE_ASSIGN_OR_RETURN(const TensorView lse, ctx.arena->Make(t, {n}));
  MOE_RETURN_IF_ERROR(d->GatherColumns(logits, label, told.At(1).Reshape({n, 1})));
  MOE_RETURN_IF_ERROR(d->Softmax(logits, logits, told.At(0)));
  MOE_RETURN_IF_ERROR(Annotate(AllGather(tp->For("head softmax"), told.data(), told.bytes(), heard.data()), "head softmax"));
  MOE_RETURN_IF_ERROR(d->GatherRows(heard.Reshape({ranks * 2 * n, 1}), by_row, ratio.Reshape({n * ranks, 1})));
  MOE_RETURN_IF_ERROR(d->Softmax(ratio, ratio, lse));
  MOE_RETURN_IF_ERROR(d->MaskRows(valid_T, lse.Reshape({n, 1})));
  MOE_ASSIGN_OR_RETURN(double part, d->Sum(lse));
  for (int64_t r = 0; r < ranks; ++r) {
    MOE_ASSIGN_OR_RETURN(const double of_labels, d->Sum(heard.At(2 * r + 1)));
    part -= of_labels;
  }
  *sum += part;
  if (!backward) return absl::OkStatus();
  MOE_ASSIGN_OR_RETURN(const TensorView probs, ctx.arena->Make(t, logits.shape()));
  MOE_ASSIGN_OR_RETURN(const TensorView scale, ctx.arena->Make(t, {n, 1}));
  MOE_RETURN_IF_ERROR(d->Copy(logits, probs));
  MOE_RETURN_IF_ERROR(d->GatherColumns(ratio, my_column, scale));   // 0 where there is no label
  MOE_RETURN_IF_ERROR(d->Fill(logits, 0));
  MOE_RETURN_IF_ERROR(d->AddScaledRows(scale.Flat(), probs, grad_scale, logits));
  MOE_RETURN_IF_ERROR(d->Fill(scale, -grad_scale));
  return d->ScatterColumns(scale, label, logits);
}

absl::StatusOr<double> VocabularyTable::Loss(const ModuleContext& ctx, const TokenLayout& l, bool backward, double grad_scale, Out x_TD) {
  Device* d = ctx.device;
  Communicator* tp = ranks_.group(GroupKind::kTp);
  const DType t = x_TD.dtype();
  const Arena::Mark start = ctx.arena->Position();
  TensorView all = x_TD;
  if (tp) {
    MOE_ASSIGN_OR_RETURN(all, ctx.arena->Make(t, {l.rows(), d_model_}));
    MOE_RETURN_IF_ERROR(GatherRows(d, tp, x_TD, l.tp_rows(), all, "head gather"));
  }
  double sum = 0;
  // At least one block, so that the collectives of a pass do not depend on what it holds.
  for (int64_t begin = 0; begin == 0 || begin < l.rows(); begin += block_) {
    const Arena::Mark mark = ctx.arena->Position();
    const int64_t n = std::min(block_, l.rows() - begin);
    MOE_ASSIGN_OR_RETURN(const TensorView logits, ctx.arena->Make(t, {n, rows_}));
    const TensorView x = all.Rows(begin, n);
    MOE_RETURN_IF_ERROR(d->Gemm(false, true, 1, x, table_->value, 0, logits));
    MOE_RETURN_IF_ERROR(CrossEntropy(ctx, l.labels().data() + begin, backward, grad_scale, logits, &sum));
    if (backward) {
      MOE_RETURN_IF_ERROR(d->Gemm(true, false, 1, logits, x, 1, table_->grad));
      MOE_RETURN_IF_ERROR(d->Gemm(false, false, 1, logits, table_->value, 0, x));   // x has been read for the last time
    }
    ctx.arena->Rewind(mark);
  }
  if (tp && backward) MOE_RETURN_IF_ERROR(ReduceRows(d, ctx.arena, tp, all, l.tp_rows(), x_TD, false, "head reduce"));
  ctx.arena->Rewind(start);
  return sum;
}

absl::Status VocabularyTable::Logits(const ModuleContext& ctx, const TokenLayout& l, In x_TD, const std::vector<int32_t>& wanted, TensorView* logits) {
  Device* d = ctx.device;
  Communicator* tp = ranks_.group(GroupKind::kTp);
  const DType t = x_TD.dtype();
  const int64_t n = static_cast<int64_t>(wanted.size());
  TensorView all = x_TD;
  if (tp) {
    MOE_ASSIGN_OR_RETURN(all, ctx.arena->Make(t, {l.rows(), d_model_}));
    MOE_RETURN_IF_ERROR(GatherRows(d, tp, x_TD, l.tp_rows(), all, "head gather"));
  }
  MOE_ASSIGN_OR_RETURN(const TensorView index, ToDevice(ctx.arena, DType::kI32, {n}, wanted.data()));
  MOE_ASSIGN_OR_RETURN(const TensorView x, ctx.arena->Make(t, {n, d_model_}));
  MOE_ASSIGN_OR_RETURN(*logits, ctx.arena->Make(t, {n, rows_}));
  MOE_RETURN_IF_ERROR(d->GatherRows(all, index, x));
  return d->Gemm(false, true, 1, x, table_->value, 0, *logits);
}

}  // namespace moe
